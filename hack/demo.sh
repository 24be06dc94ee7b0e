#!/usr/bin/env bash
# Runs the walk-through of docs/quickstart.md on a cluster of three nodes that it starts on this
# machine, and stops at the end. With KEEP=1 it leaves the cluster and the controller running until Ctrl-C.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

app=localservice-app
cluster='' controller='' download='' follower='' # process ids
progress='' # the file descriptor of the cluster's output
tmp=$(mktemp -d)
bold='' plain=''
if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
die() { printf '\ndemo: %s\n' "$*" >&2; exit 1; }

# show prints a command as if it were typed at a prompt, and runs it.
show() { say "\$ $1"; eval "$1"; }
kubectl() { bin/playground kubectl "$@"; }

# await polls until a command succeeds.
await() {
    local what=$1 deadline=$((SECONDS + 60))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || die "waited for a minute in vain: $what"
        kill -0 "$controller" 2>/dev/null || die 'the controller has ended'
        sleep 0.1
    done
}

# end stops a process that this script started, and waits until it is gone.
end() {
    [[ -n $1 ]] || return 0
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

cleanup() {
    local status=$?
    trap '' INT TERM HUP
    if ((status != 0 && status < 128)) && [[ -n $controller ]]; then
        if kill -0 "$cluster" 2>/dev/null; then
            say 'Pods and recent events:'
            kubectl get pod --all-namespaces -o wide || true
            kubectl get events --sort-by=.metadata.creationTimestamp | tail -n 15 || true
        fi
        say 'The end of the log of the controller:'
        tail -n 30 "$tmp/controller.log"
    fi >&2
    [[ -z $cluster ]] || say 'The cluster and the controller end.'
    end "$follower"
    end "$download"
    end "$controller"
    end "$cluster"
    [[ -z $progress ]] || ((status == 0)) || cat <&"$progress"
    rm -rf "$tmp"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# build runs make, and prints the remaining time.
build() {
    GOFLAGS="$(go env GOFLAGS) -v" make --no-print-directory build 2>&1 |
        hack/playground/progress.sh . ./cmd/kubectl-localservice ./artifacts/app
}

has_services() { [[ $(kubectl get service -l "owner=$app" -o name | wc -l) == "$1" ]]; }
all_ready() { [[ $(kubectl get localservice "$app" -o 'jsonpath={.status.ready}') == 3/3 ]]; }
all_labelled() { [[ $(kubectl get pod -l "kind=$app,vm/rack" -o name | wc -l) == 5 ]]; }
all_named() { [[ $(kubectl get -n hostnames localservice "$app" -o 'jsonpath={.status.ready}') == 3/3 ]]; }
ask_by_hostname() {
    local answer
    answer=$(bin/playground run -n hostnames -- curl -sS --max-time 10 "http://${1/./-}.$app:8080") || return
    printf '%s\n' "$answer"
    [[ $answer == 'hello  this message from '*/"$1" ]] || die "http://${1/./-}.$app:8080 was answered from a wrong node"
}
# ask_each sends a request to every node's name, and prints the answers.
ask_each() {
    local node answer
    for node in k8s01 k8s02 k8s03.lab; do
        await "http://$app-${node/./-}:8080 does not answer" ask "$node"
        say "\$ bin/playground run -- curl -s http://$app-${node/./-}:8080"
        answer=$(ask "$node") || die "http://$app-${node/./-}:8080 does not answer any more"
        printf '%s\n' "$answer"
        [[ $answer == 'hello  this message from '*/"$node" ]] ||
            die "http://$app-${node/./-}:8080 was answered from a wrong node"
    done
}
ask() { bin/playground run -- curl -sS --max-time 10 "http://$app-${1/./-}:8080"; }

[[ $(uname -s) == Linux ]] || die 'the cluster needs Linux: its nodes are namespaces of the machine it runs on'
command -v go >/dev/null || die 'please install Go first: https://go.dev/doc/install'
mkdir -p bin
exec {lock}<bin # for as long as this script runs
flock --nonblock "$lock" || die 'a demo is already running in this directory: end it with Ctrl-C where it runs'

if [[ ! -e bin/playground ]]; then
    say 'The first time, the demo compiles a whole Kubernetes: about 22 minutes on two slow cores, later about one.'
    cat <<'END'
It downloads 0.9 GB of Go modules, and installs the Debian packages that are missing: make, curl, nftables, crun.
They stay, and so do bin/ and 4.4 GB in the caches of Go. The cluster leaves nothing behind.
END
    # The modules are downloaded while packages are installed and the controller is compiled.
    (cd hack/playground && exec go list -deps . ./cmd/pause tool) {lock}<&- >/dev/null 2>&1 &
    download=$!
fi
hack/packages.sh --demo
say 'Building the controller and the application'
build
end "$download" # The build downloads the rest, and says so.
download=''
say 'Building the playground, which is all of Kubernetes'
hack/playground/build.sh
bin/playground preflight >/dev/null

say 'Starting a cluster of three nodes'
export no_proxy='*' KUBECACHEDIR=$tmp/kubectl # The cluster is on this machine, and must leave no files.
coproc up { exec bin/playground up --die-with-parent --nodes k8s01,k8s02,k8s03.lab \
    --image "localhost/$app:1=bin/$app" 2>&1; }
# shellcheck disable=SC2154 # coproc sets it
cluster=$up_PID
exec {progress}<&"${up[0]}"
KUBECONFIG=''
while [[ -z $KUBECONFIG ]] && read -r line <&"$progress"; do
    if [[ $line == 'ready: KUBECONFIG='* ]]; then KUBECONFIG=${line#*=}; else printf '%s\n' "$line"; fi
done
[[ -n $KUBECONFIG ]] || die 'the cluster did not start'
show "export KUBECONFIG=$KUBECONFIG"
show 'kubectl get node'

show 'kubectl create -f artifacts/examples/crd.yaml'
flag='' # The controller's port for metrics may be in use on this machine.
if (: <>/dev/tcp/127.0.0.1/8081) 2>/dev/null; then flag='-http-address=127.0.0.1:0'; fi
say "\$ ./bin/local-service-controller -kubeconfig=\$KUBECONFIG${flag:+ $flag} &"
./bin/local-service-controller -kubeconfig="$KUBECONFIG" ${flag:+"$flag"} >"$tmp/controller.log" 2>&1 {lock}<&- &
controller=$!
await 'LocalServices are not served' kubectl get localservice
show 'kubectl create -f artifacts/examples/example.yaml'
show "kubectl rollout status deployment/$app --timeout=2m"
show "kubectl wait --for=condition=Ready localservice/$app --timeout=1m"
await 'not all pods have their label' all_labelled
await 'there are nodes without a pod that is ready' all_ready
show 'kubectl get LocalService'
show 'kubectl get service -l owner'
show "kubectl get pod -l kind=$app -L vm/rack"
show 'kubectl get pod -l vm/rack=k8s03.lab'

say 'The dot in the name of k8s03.lab becomes a dash'
ask_each

say 'Now only nodes with the label disk=ssd are to have a Service: k8s01 and k8s02'
show 'kubectl label node k8s01 k8s02 disk=ssd'
show "kubectl patch localservice $app --type=merge -p '{\"spec\":{\"nodeSelector\":{\"disk\":\"ssd\"}}}'"
await 'the Service of k8s03.lab is still there' has_services 2
show 'kubectl get service -l owner'
say 'k8s03.lab gets the label, and its Service is back'
show 'kubectl label node k8s03.lab disk=ssd'
await 'the Service of k8s03.lab is not back' has_services 3
show 'kubectl get service -l owner'
await "http://$app-k8s03-lab:8080 does not answer" ask k8s03.lab
show "bin/playground run -- curl -s http://$app-k8s03-lab:8080"

say 'The same with one Service for all nodes, in which each has a hostname'
show 'kubectl create -f artifacts/examples/hostnames.yaml'
show "kubectl rollout status -n hostnames deployment/$app --timeout=2m"
show "kubectl wait -n hostnames --for=condition=Ready localservice/$app --timeout=1m"
await 'there are nodes without a pod that is ready' all_named
show 'kubectl get -n hostnames localservice,service'
say 'One of the Services has the names, and the other selects the pods'
for node in k8s01 k8s02 k8s03.lab; do
    await "http://${node/./-}.$app:8080 does not answer" ask_by_hostname "$node"
    say "\$ bin/playground run -n hostnames -- curl -s http://${node/./-}.$app:8080"
    ask_by_hostname "$node"
done

say 'That was the walk-through. What next:'
if [[ ${KEEP:-0} == 0 ]]; then
    cat <<'END'
  make demo KEEP=1         the same, and the cluster stays for you to try things
  docs/quickstart.md       kind, k3d, minikube, or a cluster with a registry
  docs/recipes.md          agents, caches, exporters, zones, TLS

What stays on this machine: bin/, which `make clean` removes, and the caches of Go, 4.4 GB for this demo alone, which
`go clean -cache -modcache` empties, for all your projects.
END
else
    trap 'exit 0' INT TERM HUP
    cat <<END
The cluster and the controller keep running until Ctrl-C. In another terminal:

  cd $PWD
  export KUBECONFIG=$KUBECONFIG PATH=\$PWD/bin:\$PATH${PLAYGROUND_DIR:+ PLAYGROUND_DIR=$PLAYGROUND_DIR}
  alias kubectl='playground kubectl'
  kubectl get localservice,service,pod
  kubectl localservice nodes $app  # which names answer, and why others do not
  kubectl localservice view                    # the same in a browser
  playground run -- curl -s http://$app-k8s02:8080

The log of the controller: $tmp/controller.log
END
    cat <&"$progress" & # for example, that a node has ended because it was deleted
    follower=$!
    # Both end with 0 only when somebody ends them. A Ctrl-C ends them, too, also where this script is not to notice it.
    ! wait -n "$cluster" "$controller" || exit 0
    die 'the cluster or the controller has ended by itself'
fi
