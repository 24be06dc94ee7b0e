{{- define "lsc.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lsc.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "lsc.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "lsc.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* hack/update-chart.sh renders artifacts/deploy and artifacts/admission from these templates: with a Release.Service
of its own, and without what only Helm makes of them. */ -}}
{{- define "lsc.selectorLabels" -}}
{{- if eq .Release.Service "Helm" -}}
app.kubernetes.io/name: {{ include "lsc.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- else -}}
app: {{ include "lsc.name" . }}
{{- end }}
{{- end }}

{{- define "lsc.labels" -}}
{{ include "lsc.selectorLabels" . }}
{{- if eq .Release.Service "Helm" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The labels of the policies for the node label, also of those that are installed beside a release of the chart. */ -}}
{{- define "lsc.nodeLabelPolicyLabels" -}}
{{- if eq .Release.Service "Helm" }}{{ include "lsc.labels" . }}{{ else }}app.kubernetes.io/name: {{ include "lsc.name" . }}{{ end }}
{{- end }}

{{- /* What the names of roles that users are bound to begin with. */ -}}
{{- define "lsc.userRoles" -}}
{{- if eq .Release.Service "Helm" }}{{ include "lsc.fullname" . }}{{ else }}local-service{{ end }}
{{- end }}

{{- /* The user as whom the controller makes its requests. */ -}}
{{- define "lsc.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "lsc.fullname" . }}
{{- end }}

{{- define "lsc.nodeLabelKey" -}}
{{ index .Values.flags "node-label-key" | default "vm/rack" }}
{{- end }}

{{- define "lsc.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* A list of arguments. Numbers come as floats, and large ones would be written 1e+06. */ -}}
{{- define "lsc.args" -}}
{{- $flags := deepCopy .Values.flags }}
{{- with .Values.leaderElection }}
{{- if not .enabled }}{{ $_ := set $flags "leader-elect" false }}{{ end }}
{{- with .leaseDuration }}{{ $_ := set $flags "leader-election-lease-duration" . }}{{ end }}
{{- end }}
{{- with .Values.metrics.secure }}
{{- if .enabled }}
{{- $_ := set $flags "metrics-secure-address" ":8443" }}
{{- if .certificateSecret }}
{{- $_ := set $flags "metrics-tls-cert-file" "/etc/metrics-tls/tls.crt" }}
{{- $_ := set $flags "metrics-tls-key-file" "/etc/metrics-tls/tls.key" }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.namespaces }}{{ $_ := set $flags "namespaces" (join "," .) }}{{ end }}
{{- if not .Values.pods.enabled }}{{ $_ := set $flags "label-pods" false }}{{ end }}
{{- if not .Values.guard.enabled }}{{ $_ := set $flags "guard" false }}{{ end }}
{{- range $name, $value := $flags }}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $value = int64 $value }}{{ end }}
- {{ printf "-%s=%v" $name $value | quote }}
{{- end }}
{{- end }}

{{- /* The container's port that serves the metrics. */ -}}
{{- define "lsc.metricsPort" -}}
{{- if .Values.metrics.secure.enabled }}https{{ else }}http{{ end }}
{{- end }}

{{- /* What the controller does in each namespace that it works in. */ -}}
{{- define "lsc.rules" -}}
- apiGroups: [localservice.dev]
  resources: [localservices]
  verbs: [get, list, watch]
- apiGroups: [localservice.dev]
  resources: [localservices/status]
  verbs: [update]
- apiGroups: [localservice.dev] # for owner references that block deletion, where OwnerReferencesPermissionEnforcement is on
  resources: [localservices/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch, delete]
{{- if .Values.pods.enabled }}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch] # patch: the node label
# Does it select its pods by the node label? Then that stays as it is.
- apiGroups: [apps]
  resources: [replicasets, daemonsets, statefulsets]
  verbs: [get]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get]
- apiGroups: [""]
  resources: [replicationcontrollers]
  verbs: [get]
{{- end }}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{ end }}

{{- /* What it reads of the cluster, in whichever namespaces it works. */ -}}
{{- define "lsc.clusterRules" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch] # get: is it really gone?
{{ end }}

{{- define "lsc.hostnamesRules" -}}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, create, update, delete]
- apiGroups: [discovery.k8s.io] # OpenShift's admission lets only those publish the addresses of pods who have this
  resources: [endpointslices/restricted]
  verbs: [create]
- apiGroups: [""] # for owner references that block deletion, where OwnerReferencesPermissionEnforcement is on
  resources: [services/finalizers]
  verbs: [update]
{{ end }}

{{- /* A role with some rules, and its binding to the controller: in a namespace, or of the whole cluster. */ -}}
{{- define "lsc.grant" }}
{{- $name := printf "%s%s" (include "lsc.fullname" .context) (get . "suffix") }}
{{- $kind := ternary "Role" "ClusterRole" (ne (get . "namespace") "") }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- with get . "namespace" }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "lsc.labels" .context | nindent 4 }}
rules:
{{ .rules | trim }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- with get . "namespace" }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "lsc.labels" .context | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ include "lsc.fullname" .context }}
  namespace: {{ .context.Release.Namespace }}
{{- end }}
