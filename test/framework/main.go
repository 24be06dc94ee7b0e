package framework

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
)

// parallelTests is how many tests run at a time: many more than there are processors, because they mostly wait.
const parallelTests = "12"

// Main is the body of a TestMain: it runs setup, the tests, and what setup returns. It does not return. An error of
// either fails the package.
func Main(m *testing.M, setup func(ctx context.Context) (teardown func() error, err error)) {
	os.Exit(run(m, setup))
}

func run(m *testing.M, setup func(ctx context.Context) (func() error, error)) (exitCode int) {
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	flag.Parse() // The command line may say otherwise.
	teardown, err := setup(context.Background())
	if err != nil {
		fmt.Fprintf(os.Stderr, "the tests cannot begin: %v\n", err)
		return 1
	}
	defer func() {
		if err := teardown(); err != nil {
			fmt.Fprintf(os.Stderr, "after the tests: %v\n", err)
			exitCode = max(exitCode, 1)
		}
	}()
	return m.Run()
}
