#!/usr/bin/env bash
# Installs, upgrades, rolls back and uninstalls the chart with Helm 3 and 4 on a real API server without nodes, and lets
# them take over an installation of install.yaml. Other tests check what the chart renders, and that its pods run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=artifacts/chart/local-service-controller
# shellcheck source=hack/cluster.sh
source hack/cluster.sh --control-plane-only
export HELM_CACHE_HOME=$dir HELM_CONFIG_HOME=$dir HELM_DATA_HOME=$dir

deployment=deployment/local-service-controller
replicas() { kubectl get "$deployment" -n local-service-system -o 'jsonpath={.spec.replicas}'; }
slices() { kubectl get clusterrolebinding local-service-controller-hostnames --ignore-not-found -o name; }
expect() { [[ $2 == "$3" ]] || { echo "$helm: $1: $2, not $3" >&2; exit 1; }; }

kubectl apply -f artifacts/examples/crd.yaml
kubectl wait --for=condition=Established crd/localservices.localservice.dev
kubectl create -n default -f - <<<'{"apiVersion": "localservice.dev/v1alpha1", "kind": "LocalService",
    "metadata": {"name": "kept"}, "spec": {"clusterIP": "None", "selector": {"app": "a"}, "ports": [{"port": 80}]}}'
uid() { kubectl get localservice kept -n default -o 'jsonpath={.metadata.uid}'; }
uid=$(uid)
for name in helm3 helm4; do
    helm=$name
    run() { "bin/$helm" "$1" local-service-controller "${@:2}" --namespace local-service-system; }
    # A user moves from install.yaml to the chart, as docs/install.md says.
    kubectl apply -f artifacts/deploy/install.yaml
    kubectl delete -f artifacts/deploy/hostnames.yaml -f artifacts/deploy/local-service-controller.yaml \
        -f artifacts/deploy/guard.yaml
    run install "$chart" --take-ownership --create-namespace --set 'namespaces={default}'
    expect "permission to write all EndpointSlices, with namespaces" "$(slices)" ""
    run upgrade "$chart"
    run upgrade "$chart" --set replicas=3,hostnames.enabled=false,networkPolicy.enabled=true,admission.enabled=true \
        --set metrics.service.enabled=true,metrics.secure.enabled=true
    expect "replicas after the upgrade" "$(replicas)" 3
    expect "permission to write EndpointSlices after the upgrade" "$(slices)" ""
    run rollback 2
    expect "replicas after the rollback" "$(replicas)" 2
    expect "permission to write EndpointSlices after the rollback" "$(slices)" \
        clusterrolebinding.rbac.authorization.k8s.io/local-service-controller-hostnames
    expect "NetworkPolicies after the rollback" "$(kubectl get networkpolicies -n local-service-system -o name)" ""
    run upgrade "$chart" --set crds.install=false
    expect "the LocalService without the chart's CustomResourceDefinition" "$(uid)" "$uid"
    run uninstall
    expect "Deployments after the uninstall" "$(kubectl get deployments -n local-service-system -o name)" ""
    expect "the LocalService after the uninstall" "$(uid)" "$uid"
    expect "permissions after the uninstall" "$(kubectl get clusterroles,clusterrolebindings,roles,rolebindings -A -o name |
        grep local-service)" ""
    "bin/$helm" install other "$chart" --take-ownership --namespace other --create-namespace
    "bin/$helm" uninstall other --namespace other
    expect "the LocalService after a release of another name" "$(uid)" "$uid"
done
echo "the chart can be installed, upgraded, rolled back and uninstalled"
