#!/usr/bin/env bash
# Generates what follows from other files: the chart's copies of the CustomResourceDefinition, of the admission
# policies and of the dashboard, its README, and artifacts/deploy/install.yaml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=artifacts/chart/local-service-controller
# Copies, because a chart's package has only the files inside it, and some tools refuse links to files outside it.
mkdir -p "$chart/files"
cp artifacts/examples/crd.yaml artifacts/admission/node-label{,-guard}.yaml "$chart/files/"
cp artifacts/dashboards/local-service-controller.json "$chart/files/dashboard.json"

hack/go-build.sh bin/helm-docs hack/chart github.com/norwoodj/helm-docs/cmd/helm-docs
bin/helm-docs --log-level warning --chart-search-root "$chart" --sort-values-order file

# body prints a file without its first comment, which describes that file only.
body() { sed '1,/^[^#]/{/^#/d}' "$1"; }
{
    echo "# All that a cluster needs, in one file: kubectl apply -f install.yaml"
    echo "#"
    echo "# To uninstall: kubectl delete -f hostnames.yaml -f local-service-controller.yaml, the files beside this one. To delete"
    echo "# what is in this file deletes the CustomResourceDefinition, too, and with it all LocalServices and all their Services."
    echo "#"
    echo "# Generated from crd.yaml, local-service-controller.yaml and hostnames.yaml by hack/update-chart.sh: do not edit."
    body artifacts/examples/crd.yaml
    echo ---
    body artifacts/deploy/local-service-controller.yaml
    echo ---
    body artifacts/deploy/hostnames.yaml
} >artifacts/deploy/install.yaml
