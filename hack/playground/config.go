package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// config holds the options of `up`, as its processes inside the namespaces read them.
type config struct {
	Nodes            []string
	Images           []imageSource
	Binary           string // the playground, as a path: mounting does not take /proc/self/exe of another namespace
	ControlPlaneOnly bool
	ControlPlane     string // a program in the place of the playground; "" for none
	DualStack        bool
	Audit            bool
	Controllers      string
	APIServerFlags   []string
	Port             int // of the API server on the machine's 127.0.0.1, once it has one
}

// cidrs is the value of a flag that takes a range of addresses, or one of each IP family.
func (c *config) cidrs(ipv4, ipv6 string) string {
	if c.DualStack {
		return ipv4 + "," + ipv6
	}
	return ipv4
}

// libexec returns the directory of the programs that nodes run beside the playground itself.
func libexec(binary string) string { return filepath.Join(filepath.Dir(binary), "playground.d") }

func (d workdir) writeConfig(c config) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the playground's configuration: %w", err)
	}
	if err := os.WriteFile(d.path("config.json"), b, 0o600); err != nil {
		return fmt.Errorf("writing the playground's configuration: %w", err)
	}
	return nil
}

func (d workdir) readConfig() (c config, err error) {
	b, err := os.ReadFile(d.path("config.json"))
	if err != nil {
		return c, fmt.Errorf("no playground is running in %s: start one with `playground up` (%w)", d, err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("reading %s: %w", d.path("config.json"), err)
	}
	return c, nil
}
