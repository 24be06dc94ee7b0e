#!/usr/bin/env bash
# Tests the files of a release on a cluster of three nodes, without anything else: image, chart, plugin, install.yaml.
# It removes the controller with local-service-controller.yaml.
#   hack/test-release.sh VERSION REPOSITORY FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$1 repository=$2 dist=$3
((EUID == 0)) || { echo "run it as root: where there is no other user, the image's cannot be had" >&2; exit 1; }
# shellcheck source=hack/cluster.sh
source hack/cluster.sh --image "$repository:$version=$dist/local-service-controller.oci.tar" \
    --image localhost/localservice-app:1=bin/localservice-app
export HELM_CACHE_HOME=$dir HELM_CONFIG_HOME=$dir HELM_DATA_HOME=$dir

# Waits until every node's name answers from that node, at most a minute.
answers() {
    local node deadline=$((SECONDS + 60))
    for node in k8s01 k8s02 k8s03; do
        until [[ $(bin/playground run -- curl -s --max-time 2 "http://localservice-app-$node:8080") == *"/$node" ]]; do
            ((SECONDS < deadline)) || { echo "$1: localservice-app-$node does not answer" >&2; exit 1; }
            sleep 0.2
        done
    done
    echo "$1: every node's name answers"
}

tar -xzf "$dist/kubectl-localservice_linux_$(go env GOARCH).tar.gz" -C "$dir"
controller=(--namespace local-service-system)
bin/helm4 install lsc "$dist/local-service-controller-${version#v}.tgz" "${controller[@]}" --create-namespace --wait
# A user's chart: Helm waits until the LocalService is ready, and stops waiting if only an edit can make it ready.
user_chart() {
    mkdir -p "$dir/$1/templates"
    printf 'apiVersion: v2\nname: %s\nversion: 0.0.1\n' "$1" >"$dir/$1/Chart.yaml"
    cat >"$dir/$1/templates/all.yaml"
}
user_chart app <artifacts/examples/example.yaml
bin/helm4 install app "$dir/app" --wait --timeout 90s
[[ $(kubectl get localservice localservice-app -o 'jsonpath={.status.services}') == 3 ]] ||
    { echo "Helm has not waited for the LocalService" >&2; exit 1; }
kubectl create service clusterip bad-k8s01 --clusterip None # somebody else has the name
user_chart bad <<'LOCALSERVICE'
{apiVersion: localservice.dev/v1alpha1, kind: LocalService, metadata: {name: bad},
  spec: {clusterIP: None, selector: {app: a}}}
LOCALSERVICE
if answer=$(bin/helm4 install bad "$dir/bad" --wait --timeout 90s 2>&1) || [[ $answer != *"status: Failed"* ]]; then
    echo "Helm says of a LocalService that cannot work: $answer" >&2
    exit 1
fi
answers "installed with Helm"
"$dir/kubectl-localservice" nodes localservice-app

# One namespace only, and metrics for clients that have the permission to read them.
bin/helm4 upgrade lsc "$dist/local-service-controller-${version#v}.tgz" "${controller[@]}" --wait \
    --set 'namespaces={default},metrics.service.enabled=true,metrics.secure.enabled=true'
kubectl delete services -l owner=localservice-app
answers "restricted to a namespace"
kubectl create serviceaccount prometheus
# Waits until a scrape by Prometheus has the expected result, at most a minute.
scraped() {
    local answer deadline=$((SECONDS + 60))
    until answer=$(bin/playground run -- curl --silent --show-error --insecure --max-time 5 \
        --header "Authorization: Bearer $(kubectl create token prometheus)" \
        https://lsc-local-service-controller-metrics.local-service-system:8443/metrics 2>&1) && [[ $answer == *"$1"* ]]; do
        ((SECONDS < deadline)) || { echo "metrics without $1: $answer" >&2; exit 1; }
        sleep 1
    done
}
scraped 'may not get'
kubectl create clusterrolebinding prometheus --clusterrole=lsc-local-service-controller-metrics-reader \
    --serviceaccount=default:prometheus
scraped 'localservice_services{state="in_place"}'
echo "metrics are for those who have the role"

bin/helm4 uninstall lsc "${controller[@]}" --wait
answers "uninstalled with Helm"

kubectl apply -f "$dist/install.yaml"
kubectl rollout status deployment/local-service-controller "${controller[@]}" --timeout=90s
kubectl wait --for=condition=Ready lsvc/localservice-app --timeout=30s
kubectl delete services -l owner=localservice-app # the controller of install.yaml recreates them
answers "installed with install.yaml"

kubectl delete -f "$dist/hostnames.yaml" -f "$dist/local-service-controller.yaml" -f "$dist/guard.yaml" --timeout=90s
kubectl get localservice localservice-app
answers "uninstalled with local-service-controller.yaml"
