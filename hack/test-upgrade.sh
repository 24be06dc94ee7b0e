#!/usr/bin/env bash
# Upgrades the chart and the image of an earlier commit to the current ones, rolls back, upgrades again and uninstalls,
# on three nodes, while every node requests every node's name continuously: hack/test-upgrade.sh [COMMIT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

((EUID == 0)) || { echo "run it as root: where there is no other user, the image's cannot be had" >&2; exit 1; }
from=${1:-HEAD~1}
if ! commit=$(git rev-parse --quiet --verify "$from^{commit}"); then
    echo "there is no commit $from here: a shallow clone lacks it until \`git fetch --unshallow\`" >&2
    exit 1
fi

folder=bin/upgrade image=localhost/local-service-controller
rm -rf "$folder"
mkdir -p "$folder/source"
git archive "$commit" | tar -x -C "$folder/source"
hack=$PWD/hack
(cd "$folder/source" && "$hack/image.sh" v0.0.1 "$image:v0.0.1" ../v0.0.1 "$commit")
hack/image.sh v0.0.2 "$image:v0.0.2" "$folder/v0.0.2"

# shellcheck source=hack/cluster.sh
source hack/cluster.sh --image "$image:v0.0.1=$folder/v0.0.1/local-service-controller.oci.tar" \
    --image "$image:v0.0.2=$folder/v0.0.2/local-service-controller.oci.tar" \
    --image localhost/localservice-app:1=bin/localservice-app
export HELM_CACHE_HOME=$dir HELM_CONFIG_HOME=$dir HELM_DATA_HOME=$dir
nodes=(k8s01 k8s02 k8s03)
chart=artifacts/chart/local-service-controller
helm() { bin/helm4 "$1" local-service-controller "${@:2}" --namespace local-service-system --wait; }

# Requests all names from a node until the file stop exists, and writes a line for each answer: right, or the error.
ask() {
    # shellcheck disable=SC2016 # that shell is to expand it
    bin/playground run --node "$1" -- bash -c '
        until [[ -e $0/stop ]]; do
            for node in "$@"; do
                answer=$(curl --silent --show-error --max-time 5 "http://localservice-app-$node:8080" 2>&1) || true
                [[ $answer == *"/$node" ]] && echo right || echo "$(date +%T) $node: $answer"
            done
        done' "$dir" "${nodes[@]}" >"$dir/answers-$1"
}

# Waits until the controller follows a change of the LocalService: so this version works.
works() {
    kubectl patch localservice localservice-app --type merge \
        --patch "{\"spec\":{\"serviceMetadata\":{\"labels\":{\"step\":\"$1\"}}}}" >"$dir/out"
    for node in "${nodes[@]}"; do
        kubectl wait "service/localservice-app-$node" --for "jsonpath={.metadata.labels.step}=$1" --timeout 60s >"$dir/out"
    done
    local running
    running=$(kubectl get deployment local-service-controller --namespace local-service-system \
        --output 'jsonpath={.spec.template.spec.containers[0].image}')
    [[ $running == "$image:$2" ]] || { echo "$1: $running runs, not $image:$2" >&2; exit 1; }
    echo "$1: $running works, and was asked $(cat "$dir"/answers-* 2>/dev/null | wc -l) times"
}

helm install "$folder/source/$chart" --create-namespace --set "image.repository=$image,image.tag=v0.0.1"
kubectl create -f "$folder/source/artifacts/examples/example.yaml"
kubectl rollout status deployment/localservice-app --timeout 90s
kubectl wait --for jsonpath='{.status.ready}'=3/3 localservice/localservice-app --timeout 60s
works installed v0.0.1
asking=()
for node in "${nodes[@]}"; do
    ask "$node" &
    asking+=($!)
done
helm upgrade "$chart" --set "image.repository=$image,image.tag=v0.0.2"
works upgraded v0.0.2
helm rollback 1
works rolled-back v0.0.1
helm upgrade "$chart" --set "image.repository=$image,image.tag=v0.0.2"
works upgraded-again v0.0.2
helm uninstall
answered=$(cat "$dir"/answers-* | wc -l)
until (($(cat "$dir"/answers-* | wc -l) > answered + 30)); do sleep 0.2; done # The names answer without a controller.
touch "$dir/stop"
wait "${asking[@]}"

wrong=$(grep --invert-match '^right$' "$dir"/answers-* || true)
echo "$(cat "$dir"/answers-* | wc -l) answers, of which $(grep --count . <<<"$wrong" || true) were wrong or none"
[[ -z $wrong ]] || { head -n 20 <<<"$wrong" >&2; exit 1; }
[[ $(kubectl get services -l owner=localservice-app --output name | wc -l) == "${#nodes[@]}" ]] ||
    { echo "the Services have not stayed" >&2; exit 1; }
