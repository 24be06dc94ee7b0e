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

{{- define "lsc.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lsc.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lsc.labels" -}}
{{ include "lsc.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
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
{{- range $name, $value := $flags }}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $value = int64 $value }}{{ end }}
- {{ printf "-%s=%v" $name $value | quote }}
{{- end }}
{{- end }}

{{- /* The container's port that serves the metrics. */ -}}
{{- define "lsc.metricsPort" -}}
{{- if .Values.metrics.secure.enabled }}https{{ else }}http{{ end }}
{{- end }}

{{- /* The admission policies are written for the default label and the default service account. */ -}}
{{- define "lsc.policies" -}}
{{- $user := printf "system:serviceaccount:%s:%s" .context.Release.Namespace (include "lsc.fullname" .context) }}
{{- $key := index .context.Values.flags "node-label-key" | default "vm/rack" }}
{{- range regexSplit "\n---\n" (.context.Files.Get .file) -1 }}
{{- $text := . | replace "system:serviceaccount:local-service-system:local-service-controller" $user }}
{{- $policy := $text | replace "vm/rack" $key | fromYaml }}
{{- $labels := merge (fromYaml (include "lsc.labels" $.context)) $policy.metadata.labels }}
{{- $_ := set $policy.metadata "labels" $labels }}
---
{{ toYaml $policy }}
{{- end }}
{{- end }}

{{- /* What the controller does in each namespace that it works in. */ -}}
{{- define "lsc.rules" -}}
- apiGroups: [localservice.dev]
  resources: [localservices]
  verbs: [get, list, watch]
- apiGroups: [localservice.dev]
  resources: [localservices/status]
  verbs: [update]
# For owner references that block deletion, where OwnerReferencesPermissionEnforcement is on.
- apiGroups: [localservice.dev]
  resources: [localservices/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch, delete]
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
- apiGroups: [""] # for owner references that block deletion, where OwnerReferencesPermissionEnforcement is on
  resources: [services/finalizers]
  verbs: [update]
{{ end }}

{{- /* A role with some rules, and its binding to the controller: in a namespace, or of the whole cluster. */ -}}
{{- define "lsc.grant" }}
{{- $name := printf "%s%s" (include "lsc.fullname" .context) (get . "suffix") }}
{{- $kind := ternary "Role" "ClusterRole" (ne (get . "namespace") "") }}
---
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
