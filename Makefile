# Everything that is built goes to bin/ and to the usual Go caches. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# A workspace of an editor must not change what is built and tested.
export GOWORK := off
# The tests on real parts import much, and vet would look at all of it: so they have -vet=off, as `make verify` vets them.

VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || echo v0.0.0-$$(git rev-parse --short HEAD 2>/dev/null || echo unknown))
LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=$(VERSION)
# IMAGE is the name that the image has in the store that it is loaded into.
IMAGE ?= localhost/local-service-controller:dev
# REPOSITORY is where the image of a release is to be pulled from, and DIST where the release goes.
REPOSITORY ?= localhost/local-service-controller
DIST ?= dist
# FROM is the commit that `make test-upgrade` begins with.
FROM ?= HEAD~1
# VERSIONS are those of Kubernetes that `make test-matrix` tests. The newest is what everything else is tested with.
VERSIONS ?= v1.34.4 v1.35.4 v1.36.3
# FOR is how long `make simulate` plays histories.
FOR ?= 1m
export FOR SEED
# FUZZTIME is how long `make fuzz` lets each fuzz test search.
FUZZTIME ?= 30s
# CHECKS are what `make verify` checks.
CHECKS := $(patsubst hack/%.sh,%,$(wildcard hack/verify-*.sh))
# FOCUS selects some of the tests of `make test-conformance`, by their names.
FOCUS ?=

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^##@/ {print "\n" substr($$0, 5) ":"} /^[a-z0-9-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: ## Show everything on a cluster of three nodes on this machine (KEEP=1: and keep it)
# As a job with a process group of its own: Ctrl-C would otherwise end make, too, and that is an error.
	@set -m; hack/demo.sh || exit

##@ The five that you need

.PHONY: test-unit
test-unit: ## Run the tests that need Go and a C compiler only: a minute, also on macOS
	KUBE_CACHE_MUTATION_DETECTOR=true CGO_ENABLED=1 go test -race -timeout 30m . ./internal/... ./pkg/... ./cmd/... ./artifacts/...
	cd test && CGO_ENABLED=0 go test ./gitops

.PHONY: verify
verify: ## Check generated code, format, static analysis, scripts and documents: two minutes, needs Go only
# Debian has Git and shellcheck. Elsewhere, CI checks the scripts.
	@if ((EUID == 0)) && command -v apt-get >/dev/null; then hack/packages.sh --verify; fi
	@$(MAKE) --no-print-directory --jobs=3 --keep-going --output-sync=target $(CHECKS)

.PHONY: $(CHECKS)
$(CHECKS):
	@TIMEFORMAT='== hack/$@.sh: %0R s'; time hack/$@.sh

.PHONY: generate
generate: ## Generate what follows from pkg/apis, the chart, and flags
	hack/update-codegen.sh
	hack/update-chart.sh
	hack/update-docs.sh

.PHONY: deploy
deploy: build ## Put the controller of this work tree into the playground or the kind cluster that kubectl uses
	@LDFLAGS='$(LDFLAGS)' hack/deploy.sh

.PHONY: test
# The same histories each time: what a new one shows must not stop a change that has nothing to do with it.
test test-cluster: SEED := $(or $(SEED),1)
test: packages test-unit ## Run all tests that a change must pass, on real nodes: 20 minutes, needs Debian or Ubuntu
	@$(MAKE) --no-print-directory simulate FOR=30s
	@$(MAKE) --no-print-directory test-cluster

##@ While you work

.PHONY: build
# See hack/playground/build.sh.
build: export GOGC ?= 400
build: ## Build the controller, the kubectl plugin and the demo app into bin/
	@CGO_ENABLED=0 go build -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ . ./cmd/kubectl-localservice
	@CGO_ENABLED=0 go build -buildvcs=false -ldflags '-s -w' -o bin/localservice-app ./artifacts/app
	@cp cmd/kubectl-localservice/kubectl_complete-localservice cmd/kubectl-localservice/kubectl-create-localservice bin/

.PHONY: run
run: build ## Run the controller of this work tree here, for the cluster that kubectl uses (FLAGS=-v=4)
	@hack/deploy.sh --here $(FLAGS)

.PHONY: lint
lint: ## Have golangci-lint look at what imports all of Kubernetes, which make verify leaves out; 5 minutes
	@hack/lint.sh --kubernetes

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin

##@ Parts of make test

.PHONY: test-cluster
test-cluster: packages promtool ## Run the tests that need a browser, an API server or nodes, and the benchmark in small
	@hack/limits.sh
	@$(MAKE) --no-print-directory test-browser test-integration
# These wait most of their time: for leases to end, pods to start. The longest ones come first.
	@$(MAKE) --no-print-directory --jobs=4 test-e2e test-migration test-fault bench-smoke test-playground test-alerts

.PHONY: test-browser
test-browser: packages ## Open the page of kubectl localservice view in chromium
	cd test && CGO_ENABLED=0 go test -vet=off ./browser

.PHONY: simulate
simulate: ## Play random histories in virtual time, for a minute (FOR=1h SEED=n)
	@hack/simulate.sh

.PHONY: test-integration
test-integration: packages build playground ## Run the built controller against a real API server
	@hack/go-build.sh bin/render-chart hack/chart ./render
	cd test && CGO_ENABLED=0 go test -vet=off -count=1 -timeout 25m ./integration/...

.PHONY: test-e2e
test-e2e: packages build playground ## Run everything in a cluster of three real nodes
	cd test && CGO_ENABLED=0 go test -vet=off -count=1 -timeout 25m -skip '^TestMigration$$' ./e2e/...

.PHONY: test-migration
test-migration: build playground ## Follow docs/migration.md on three nodes, while clients send requests; 5 minutes
	cd test && CGO_ENABLED=0 go test -vet=off -count=1 -timeout 15m -run '^TestMigration$$' ./e2e/...

.PHONY: test-fault
test-fault: build playground ## Pause leaders, change the API server, and store junk; a minute (SEED=n)
	cd test && CGO_ENABLED=0 go test -vet=off -count=1 -timeout 15m ./fault/...

.PHONY: test-alerts
test-alerts: build playground promtool ## Test the alert rules with promtool
	cd test && CGO_ENABLED=0 go test -vet=off -count=1 -timeout 10m ./alerts/...

.PHONY: test-playground
test-playground: build playground ## Test the cluster itself
	cd test && CGO_ENABLED=0 go test -vet=off -count=1 -timeout 15m ./playground/...
	cd hack/playground && CGO_ENABLED=0 go test -vet=off -count=1 ./...

.PHONY: bench-smoke
bench-smoke: build playground ## See that the benchmark works: small sizes, counts checked, times not
	@hack/go-build.sh bin/bench/bench hack/bench .
	bin/bench/bench -smoke

##@ In CI, or once a week

.PHONY: test-chart
test-chart: chart playground ## Render the Helm chart, and install it with Helm 3 and 4
	cd hack/chart && CGO_ENABLED=0 go test -vet=off -count=1 ./...
	hack/test-chart.sh

.PHONY: test-upgrade
test-upgrade: chart build playground ## Upgrade from an earlier commit on three nodes, and roll back (FROM=HEAD~1)
	@hack/test-upgrade.sh '$(FROM)'

.PHONY: test-release
test-release: build playground ## Make a release, check that it is complete and reproducible, and install it
	@hack/release.sh v0.0.0-test registry.example.com/lsc bin/release
	cd hack/image && DIST=../../bin/release CGO_ENABLED=0 go test -count=1 -timeout 20m ./...
	GOOS=windows CGO_ENABLED=0 go vet ./cmd/kubectl-localservice/...
	hack/test-release.sh v0.0.0-test registry.example.com/lsc bin/release

.PHONY: test-matrix
test-matrix: packages build playground ## Run test-integration on older control planes; 10 minutes each (VERSIONS=v1.34.4)
	@hack/go-build.sh bin/render-chart hack/chart ./render
	@for version in $(VERSIONS); do \
	  echo "== Kubernetes $$version"; \
	  hack/control-plane.sh $$version; \
	  (cd test && CONTROL_PLANE=$(CURDIR)/bin/kubernetes/$$version/control-plane CGO_ENABLED=0 \
	    go test -vet=off -count=1 -timeout 25m ./integration/...); \
	done

.PHONY: test-arm64
test-arm64: ## Run the tests of the packages for arm64 in an emulator
	@hack/packages.sh --arm64
	GOARCH=arm64 CGO_ENABLED=0 go vet . ./internal/... ./pkg/... ./cmd/...
	GOARCH=arm64 CGO_ENABLED=0 go test -count=1 -timeout 30m -exec qemu-aarch64-static ./internal/... ./pkg/naming

.PHONY: test-conformance
test-conformance: build playground ## Run Kubernetes' own conformance tests with the controller installed (FOCUS=regexp)
	@hack/packages.sh --conformance
	@hack/conformance/build.sh
	@cd test; for policies in true false; do \
	  echo "== with admission policies: $$policies"; \
	  CGO_ENABLED=0 go test -vet=off -count=1 -timeout 2h -v ./conformance -focus '$(FOCUS)' -policies=$$policies | \
	    grep --line-buffered -vE '^(=== |    --- PASS)'; \
	done

.PHONY: test-external-dns
test-external-dns: build playground ## Have the real external-dns make a record for each node; 5 minutes the first time
	CGO_ENABLED=0 go build -C hack/external-dns -ldflags '-s -w' -o ../../bin/external-dns sigs.k8s.io/external-dns
	cd test && CGO_ENABLED=0 go test -vet=off -count=1 -timeout 15m ./externaldns/...

.PHONY: fault
fault: build playground ## Run test-fault longer, and let parts of a cluster hang; 15 minutes (SEED=n)
	cd test && FAULT=whole CGO_ENABLED=0 go test -vet=off -count=1 -timeout 90m -v ./fault/... | grep -v '^=== '
	cd test && FAULT=whole CGO_ENABLED=0 go test -vet=off -count=1 -timeout 30m -v -run TestPartsThatHang ./e2e/...

.PHONY: fuzz
fuzz: ## Search for inputs that break the names and the selection of nodes (FUZZTIME=30s each)
	go test ./pkg/naming -run '^$$' -fuzz FuzzServiceName -fuzztime $(FUZZTIME)
	go test ./internal/plan -run '^$$' -fuzz FuzzSelects -fuzztime $(FUZZTIME)

.PHONY: bench
bench: build playground ## Measure the controller against bare clients (ROW=3); an hour for all rows
	@hack/go-build.sh bin/bench/bench hack/bench .
	bin/bench/bench -row '$(ROW)'

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in what the programs use; needs vuln.go.dev
	@curl --silent --fail --output /dev/null --max-time 20 https://vuln.go.dev/index/db.json || \
	  { echo "the database of vulnerabilities, vuln.go.dev, cannot be reached from here" >&2; exit 1; }
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

##@ What others need

.PHONY: image
image: ## Make the image in bin/image (IMAGE=name:tag ARCH=amd64)
	@ARCH='$(ARCH)' hack/image.sh '$(VERSION)' '$(IMAGE)' bin/image

.PHONY: chart
chart: ## Package the Helm chart into bin/, and build Helm 3 and 4 (bin/helm3, bin/helm4)
	@hack/chart/build.sh
	@bin/helm4 package artifacts/chart/local-service-controller --destination bin

.PHONY: release
release: ## Put a release into dist/ (VERSION=v0.1.0 REPOSITORY=registry.example.com/name)
	@hack/release.sh '$(VERSION)' '$(REPOSITORY)' '$(DIST)'

.PHONY: site
site: ## Build a site of the documents, with search, into bin/site (needs Node.js)
	@hack/site/build.sh

.PHONY: playground
playground: ## Build the three-node cluster into bin/; 5 minutes the first time
	@hack/packages.sh --demo
	@hack/playground/build.sh

.PHONY: packages
packages: ## Get the Debian packages that the tests with a browser or nodes need
	@hack/packages.sh

.PHONY: promtool
promtool: ## Get Debian's promtool into bin/
	@hack/promtool.sh
