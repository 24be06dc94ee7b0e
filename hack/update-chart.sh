#!/usr/bin/env bash
# Generates what follows from the Helm chart: the manifests of artifacts/deploy and artifacts/admission, for those who
# install without Helm, and the chart's README. Before that, it copies the CustomResourceDefinition and the dashboard
# into the chart.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=artifacts/chart/local-service-controller
# Copies, because a chart's package has only the files inside it, and some tools refuse links to files outside it.
mkdir -p "$chart/files"
cp artifacts/examples/crd.yaml "$chart/files/"
cp artifacts/dashboards/local-service-controller.json "$chart/files/dashboard.json"

hack/go-build.sh bin/helm-docs hack/chart github.com/norwoodj/helm-docs/cmd/helm-docs
bin/helm-docs --log-level warning --chart-search-root "$chart" --sort-values-order file

hack/go-build.sh bin/render-chart hack/chart ./render
generated='# Generated from the chart in artifacts/chart by hack/update-chart.sh: do not edit.'
# render prints some templates: render [-values YAML] TEMPLATE...
render() {
    local flags=()
    if [[ $1 == -values ]]; then flags=("$1" "$2"); shift 2; fi
    bin/render-chart "${flags[@]}" "$chart" "$@"
}
# manifest writes a file, which begins with a comment from the input: manifest FILE [-values YAML] TEMPLATE...
manifest() {
    { cat; echo "$generated"; echo '#'; render "${@:2}"; } >"$1.new"
    mv "$1.new" "$1"
}

manifest artifacts/deploy/local-service-controller.yaml namespace.yaml serviceaccount.yaml rbac.yaml \
    resourcequota.yaml poddisruptionbudget.yaml deployment.yaml <<'COMMENT'
# The controller inside a cluster: two replicas, of which one works (the holder of the Lease) and one stands by.
# Install crd.yaml first: in a release it is beside this file, in the source in artifacts/examples.
#
# `image` below is where the image is pulled from: change it if yours is elsewhere.
#
COMMENT

manifest artifacts/deploy/hostnames.yaml hostnames.yaml <<'COMMENT'
# What mode Hostnames needs, and nothing else does: to write EndpointSlices. install.yaml has it, too.
#
# The controller copies addresses that Kubernetes itself has published in the same namespace, and never changes an
# EndpointSlice that it does not manage: guard.yaml has the API server see to that. If nobody is to use mode Hostnames,
# take the permission away, or do not install it:
#
#   kubectl delete -f hostnames.yaml
#
COMMENT

manifest artifacts/deploy/guard.yaml guard.yaml <<'COMMENT'
# The guard: the API server lets the controller do what the controller does, and no more. install.yaml has it, too.
#
# RBAC cannot permit one label of a pod, or the Services of LocalServices only. These policies can: whoever steals the
# token of the service account can change no image, and no Service of anybody else. They judge the requests of that one
# user. For everybody else's requests they compare two strings.
#
# If the controller runs as another service account, or with another -node-label-key, replace the user's name and the
# key everywhere:
#
#   sed -i.bak 's#local-service-system:local-service-controller#NAMESPACE:NAME#g' guard.yaml
#   sed -i.bak 's#vm/rack#example.com/node#g' guard.yaml
#
# Is it in force? This must be refused by local-service-controller-guard-services:
#
#   kubectl create service externalname any --external-name=example.com --dry-run=server \
#     --as=system:serviceaccount:local-service-system:local-service-controller
#
COMMENT

manifest artifacts/deploy/metrics-secure.yaml -values 'metrics: {secure: {enabled: true}}' metrics-secure.yaml <<'COMMENT'
# What the flag -metrics-secure-address needs beside local-service-controller.yaml: to ask the API server whose a token is,
# and what that user may do. Whoever may do that learns what all users may do, and changes nothing.
#
#   kubectl apply -f metrics-secure.yaml
#   kubectl create clusterrolebinding prometheus-local-service-metrics --clusterrole=local-service-metrics-reader \
#     --serviceaccount=monitoring:prometheus
#
COMMENT

for policies in node-label node-label-guard; do
    manifest "artifacts/admission/$policies.yaml" -values 'admission: {enabled: true}' "$policies.yaml" </dev/null
done

# body prints a file without its first comment, which describes that file only.
body() { sed '1,/^[^#]/{/^#/d}' "$1"; }
{
    cat <<'COMMENT'
# All that a cluster needs, in one file, and how to uninstall it, with the files beside this one. To delete what is in
# this file deletes the CustomResourceDefinition, too, and with it all LocalServices and all their Services.
#
#   kubectl apply -f install.yaml
#   kubectl delete -f hostnames.yaml -f local-service-controller.yaml -f guard.yaml
#
COMMENT
    echo "$generated"
    body artifacts/examples/crd.yaml
    for file in guard local-service-controller hostnames; do
        echo ---
        body "artifacts/deploy/$file.yaml"
    done
} >artifacts/deploy/install.yaml
