// licenses prints the license texts and notices of everything that is linked into programs of this module: of the Go
// standard library and of each module, on every platform that is released. It fails if one has no license text.
//
//	go run ./hack/licenses . ./cmd/kubectl-localservice >THIRD_PARTY_LICENSES
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// platforms are those of a release. The test of the image compares the result with what the linker wrote into binaries.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

// component has a license of its own: a module, or the Go standard library.
type component struct{ name, root string }

// linked are the directories of the packages that are linked, by component.
type linked map[component]map[string]bool

func main() {
	if err := run(context.Background(), os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cannot collect the licenses:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, programs []string) error {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find the Go standard library: %w", err)
	}
	library := component{name: "Go " + runtime.Version(), root: strings.TrimSpace(string(goroot))}
	all := linked{}
	for _, platform := range platforms {
		if err := all.add(ctx, platform, library, programs); err != nil {
			return fmt.Errorf("list what is linked for %s: %w", platform, err)
		}
	}
	texts, err := all.texts()
	if err != nil {
		return err
	}
	return printTexts(out, texts)
}

// add adds the packages that the programs are made of on a platform, without those of this module.
func (l linked) add(ctx context.Context, platform string, library component, programs []string) error {
	goos, goarch, _ := strings.Cut(platform, "/")
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"list", "-deps", "-json=Dir,Module"}, programs)...)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	packages, err := cmd.Output()
	if err != nil {
		return err
	}
	for decoder := json.NewDecoder(bytes.NewReader(packages)); ; {
		var p struct {
			Dir    string
			Module *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Path, Version string }
			}
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		from := library
		if m := p.Module; m != nil {
			if m.Main {
				continue
			}
			from = component{name: m.Path + " " + m.Version, root: m.Dir}
			if m.Replace != nil {
				from.name = m.Replace.Path + " " + m.Replace.Version
			}
		}
		if l[from] == nil {
			l[from] = map[string]bool{}
		}
		l[from][p.Dir] = true
	}
}

// texts returns, for each text, the files that have it. The same text, such as that of the Apache License, is in many.
func (l linked) texts() (map[string][]string, error) {
	texts := map[string][]string{}
	var missing []error
	for from, packages := range l {
		files, err := from.files(slices.Collect(maps.Keys(packages)))
		if err != nil {
			return nil, err
		}
		licensed := false
		for file, text := range files {
			texts[text] = append(texts[text], from.name+": "+file)
			licensed = licensed || licensePattern.MatchString(filepath.Base(file))
		}
		if !licensed {
			missing = append(missing, fmt.Errorf("%s has no license text: ask its authors for one", from.name))
		}
	}
	return texts, errors.Join(missing...)
}

// A module has its license in its root. What it has copied from others has theirs beside it, in a folder further down.
var (
	licensePattern = regexp.MustCompile(`(?i)^(li[cs]en[cs]e|copying|unlicense)([.-].+)?$`)
	noticePattern  = regexp.MustCompile(`(?i)^(notice|patents|copyright)([.-].+)?$`)
)

// files returns the texts by file: those in the folders of the packages, and in all folders from there to the root.
func (c component) files(packages []string) (map[string]string, error) {
	files, seen := map[string]string{}, map[string]bool{}
	for _, dir := range packages {
		for ; !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			entries, err := os.ReadDir(dir)
			if err != nil {
				return nil, err
			}
			for _, entry := range entries {
				name := entry.Name()
				isText := licensePattern.MatchString(name) || noticePattern.MatchString(name)
				if entry.IsDir() || !isText || filepath.Ext(name) == ".go" {
					continue
				}
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					return nil, err
				}
				relative, err := filepath.Rel(c.root, filepath.Join(dir, name))
				if err != nil {
					return nil, err
				}
				if trimmed := strings.Trim(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n"); trimmed != "" {
					files[filepath.ToSlash(relative)] = trimmed
				}
			}
			if dir == c.root {
				break
			}
		}
	}
	return files, nil
}

const line = "--------------------------------------------------------------------------------"

// printTexts prints each text once, below the names of the files that have it.
func printTexts(out io.Writer, texts map[string][]string) error {
	byFiles := map[string]string{}
	for text, files := range texts {
		slices.Sort(files)
		byFiles[strings.Join(files, "\n")] = text
	}
	var b strings.Builder
	b.WriteString("The programs of local-service-controller contain this software of others, under these licenses.\n")
	for _, files := range slices.Sorted(maps.Keys(byFiles)) {
		fmt.Fprintf(&b, "\n%s\n%s\n%s\n\n%s\n", line, files, line, byFiles[files])
	}
	_, err := io.WriteString(out, b.String())
	return err
}
