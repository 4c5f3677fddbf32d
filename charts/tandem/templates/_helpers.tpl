{{/* Release's name, with the chart's in it; short enough for the suffixes (63 in all). A Service's name has no dots and
begins with a letter. */}}
{{- define "tandem.fullname" -}}
{{- $name := .Release.Name | replace "." "-" -}}
{{- if regexMatch "^[0-9]" $name }}{{ $name = printf "tandem-%s" $name -}}
{{- else if not (contains "tandem" $name) }}{{ $name = printf "%s-tandem" $name }}{{ end -}}
{{- $name | trunc 45 | trimSuffix "-" -}}
{{- end }}

{{/* Name of the operator's Deployment, ServiceAccount and roles. */}}
{{- define "tandem.operator" -}}
{{ include "tandem.fullname" . }}-operator
{{- end }}

{{/* Labels that select the operator's pods. Serving pods share the first at most: their component differs. */}}
{{- define "tandem.selector" -}}
app.kubernetes.io/name: tandem
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "tandem.labels" -}}
{{ include "tandem.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Name of the metrics server's objects, and of its Service, for which its certificate is made. */}}
{{- define "tandem.metrics" -}}
{{ include "tandem.fullname" . }}-metrics
{{- end }}

{{- define "tandem.metrics.selector" -}}
app.kubernetes.io/name: tandem
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: metrics
{{- end }}

{{- define "tandem.metrics.labels" -}}
{{- include "tandem.metrics.selector" . | fromYaml | mergeOverwrite (include "tandem.labels" . | fromYaml) | toYaml }}
{{- end }}

{{/* Whether there is a metrics server. It needs rights in the whole cluster: to have tokens reviewed. */}}
{{- define "tandem.metrics.enabled" -}}
{{- if and .Values.metricsServer.enabled (not .Values.namespaces) }}true{{ end -}}
{{- end }}

{{/* Secret with its certificate: its own, or the administrator's. */}}
{{- define "tandem.metrics.secret" -}}
{{ .Values.metricsServer.certificate.secretName | default (printf "%s-certificate" (include "tandem.metrics" .)) }}
{{- end }}

{{/* Who asks the metrics server's Prometheus: the Secret's files where they are mounted, name and headers. */}}
{{- define "tandem.metrics.prometheus" -}}
{{- $given := .Values.metricsServer.prometheus -}}
{{- if ne (empty $given.username) (empty $given.passwordFile) }}{{ fail "metricsServer.prometheus.username and passwordFile go together: write both, or neither" }}{{ end -}}
{{- if ne (empty $given.certFile) (empty $given.keyFile) }}{{ fail "metricsServer.prometheus.certFile and keyFile go together: write both, or neither" }}{{ end -}}
{{- if and $given.bearerTokenFile $given.username }}{{ fail "metricsServer.prometheus: write bearerTokenFile, or username and passwordFile, not both" }}{{ end -}}
{{- range $header, $_ := $given.headers -}}
{{- if eq (lower $header) "authorization" }}{{ fail "metricsServer.prometheus.headers must not hold Authorization: write bearerTokenFile, or username and passwordFile" }}{{ end -}}
{{- end -}}
{{- $credentials := dict -}}
{{- range $key := list "caFile" "certFile" "keyFile" "bearerTokenFile" "passwordFile" -}}
{{- with index $given $key -}}
{{- if not $given.secretName }}{{ fail (printf "metricsServer.prometheus.%s is a file of a Secret: write secretName too" $key) }}{{ end -}}
{{- $_ := set $credentials $key (printf "/etc/tandem-prometheus/%s" .) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "username" "headers" -}}
{{- with index $given $key }}{{ $_ := set $credentials $key . }}{{ end -}}
{{- end -}}
{{ toYaml $credentials }}
{{- end }}

{{/* Who asks KEDA's Prometheus: the object with its credentials, and which of them KEDA shows. */}}
{{- define "tandem.keda.prometheus" -}}
{{- $given := .Values.keda.prometheus -}}
{{- $modes := list -}}
{{- range $parameter, $mode := dict "bearerToken" "bearer" "cert" "tls" "username" "basic" -}}
{{- if hasKey ($given.parameters | default dict) $parameter }}{{ $modes = append $modes $mode }}{{ end -}}
{{- end -}}
{{- if and (or $given.secretName $given.headers) (not .Values.keda.prometheusUrl) }}{{ fail "keda.prometheus says who asks keda.prometheusUrl: write that too" }}{{ end -}}
{{- if ne (empty $given.secretName) (empty $given.parameters) }}{{ fail "keda.prometheus.secretName and parameters (its keys) go together: write both, or neither" }}{{ end -}}
{{- if and $given.secretName (not $modes) }}{{ fail "keda.prometheus.parameters needs bearerToken, username or cert: with an authority alone, put it into KEDA's own /custom/ca" }}{{ end -}}
{{- if and (has "bearer" $modes) (has "basic" $modes) }}{{ fail "keda.prometheus.parameters: write bearerToken, or username and password, not both" }}{{ end -}}
{{- $shown := dict -}}
{{- if $modes }}{{ $shown = dict "authentication" (printf "%s-prometheus" (include "tandem.metrics" .)) "authModes" $modes }}{{ end -}}
{{- with $given.headers }}{{ $_ := set $shown "headers" . }}{{ end -}}
{{ toYaml $shown }}
{{- end }}

{{- define "tandem.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end }}

{{/* Who chooses the users that pods run as. */}}
{{- define "tandem.userIds" -}}
{{- $openshift := .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}
{{- if ne .Values.userIds "Auto" }}{{ .Values.userIds }}{{ else if $openshift }}Platform{{ else }}Fixed{{ end -}}
{{- end }}

{{/* securityContext of the operator's and the metrics server's pods. */}}
{{- define "tandem.podSecurity" -}}
runAsNonRoot: true
{{- if eq (include "tandem.userIds" .) "Fixed" }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Name of the Lease: written into settings and Role alike. */}}
{{- define "tandem.lease" -}}
{{ .Values.lease.name | default (include "tandem.operator" .) }}
{{- end }}

{{/* Refuses a profile of a new name that lacks what the operator asks of it at its start. */}}
{{- define "tandem.profiles.check" -}}
{{- $shipped := .Files.Get "files/profiles.txt" | trim | splitList "\n" -}}
{{- range $profile := .Values.profiles -}}
{{- if not (has .name $shipped) -}}
{{- range $key := list "modes" "decodingTypes" -}}
{{- if not (hasKey $profile $key) }}{{ fail (printf "profiles: %s is none of those that ship with Tandem (%s), so it needs %s: write them, or one of those names" $profile.name (join ", " $shipped) $key) }}{{ end -}}
{{- end -}}
{{- if and (has "LLMAPI" .modes) (not .llmArgs) }}{{ fail (printf "profiles: %s has mode LLMAPI, so it needs llmArgs: the dialect of its tensorrt_llm" .name) }}{{ end -}}
{{- if and (has "BLS" .modes) (eq (.engineBackend | default "") "python") (not .engineSource) }}{{ fail (printf "profiles: %s has engineBackend python, so it needs engineSource" .name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The profiles of the settings: those written, with the images of `profileImages` where they write none. */}}
{{- define "tandem.profiles" -}}
{{- $images := .Values.profileImages | default dict -}}
{{- $shipped := .Files.Get "files/profiles.txt" | trim | splitList "\n" -}}
{{- $profiles := list -}}
{{- $written := list -}}
{{- range $profile := .Values.profiles -}}
{{- $written = append $written $profile.name -}}
{{- $image := index $images $profile.name -}}
{{- $profiles = append $profiles (merge (dict) $profile (ternary (dict "image" $image) dict (not (empty $image)))) -}}
{{- end -}}
{{- range $name, $image := $images -}}
{{- if not (has $name $shipped) }}{{ fail (printf "profileImages: %s is none of the profiles that ship with Tandem (%s): write it in profiles" $name (join ", " $shipped)) }}{{ end -}}
{{- if not (has $name $written) }}{{ $profiles = append $profiles (dict "name" $name "image" $image) }}{{ end -}}
{{- end -}}
{{ toYaml $profiles }}
{{- end }}

{{/* The settings file: the values that are set. A number may be 0, so emptiness is not the test. */}}
{{- define "tandem.settings" -}}
{{- include "tandem.profiles.check" . -}}
{{- $settings := dict "lease" (dict "name" (include "tandem.lease" .)) -}}
{{- range $key := list "namespaces" "servingImage" "fetcherImage" "metricsPeers" -}}
{{- with index $.Values $key }}{{ $_ := set $settings $key . }}{{ end -}}
{{- end -}}
{{- with include "tandem.profiles" . | fromYamlArray }}{{ $_ := set $settings "profiles" . }}{{ end -}}
{{- range $key := list "resyncSeconds" "workers" "revisionHistoryLimit" -}}
{{- $value := index $.Values $key -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $settings $key $value }}{{ end -}}
{{- end -}}
{{- $jobs := dict -}}
{{- range $key, $value := .Values.jobs -}}
{{- with $value }}{{ $_ := set $jobs $key . }}{{ end -}}
{{- end -}}
{{- with $jobs }}{{ $_ := set $settings "jobs" . }}{{ end -}}
{{- if eq (include "tandem.userIds" .) "Platform" }}{{ $_ := set $settings "userIds" "Platform" }}{{ end -}}
{{- $duration := .Values.lease.durationSeconds | default 15 -}}
{{- $renew := .Values.lease.renewSeconds | default 5 -}}
{{- if lt (float64 $duration) (mulf 3 $renew) }}{{ fail (printf "lease.renewSeconds %v is above a third of durationSeconds %v: a renewal may fail" $renew $duration) }}{{ end -}}
{{- range $key := list "durationSeconds" "renewSeconds" -}}
{{- with index $.Values.lease $key }}{{ $_ := set $settings.lease $key . }}{{ end -}}
{{- end -}}
{{- if include "tandem.metrics.enabled" . }}
{{- $server := dict "service" (include "tandem.metrics" .) "secret" (include "tandem.metrics.secret" .) -}}
{{- if .Values.metricsServer.certificate.secretName }}{{ $_ := set $server "manageCertificate" false }}{{ end -}}
{{- with .Values.metricsServer -}}
{{- $interval := .intervalSeconds | default 15 -}}
{{- $window := .windowSeconds | default 60 -}}
{{- if lt (float64 $window) (mulf 2 $interval) }}{{ fail (printf "metricsServer.windowSeconds %v is below twice intervalSeconds %v: figures need two readings of each pod" $window $interval) }}{{ end -}}
{{- end -}}
{{- range $key := list "intervalSeconds" "windowSeconds" "prometheusUrl" -}}
{{- with index $.Values.metricsServer $key }}{{ $_ := set $server $key . }}{{ end -}}
{{- end -}}
{{- with include "tandem.metrics.prometheus" . | fromYaml }}{{ $_ := set $server "prometheus" . }}{{ end -}}
{{- $_ := set $settings "metricsServer" $server -}}
{{- $url := printf "https://%s.%s.svc" (include "tandem.metrics" .) .Release.Namespace -}}
{{- $_ := set $settings "reports" (dict "url" $url "caFile" "/etc/tandem-metrics/ca.crt" "tokenFile" "/etc/tandem-metrics/token") -}}
{{- end -}}
{{- $keda := dict -}}
{{- if include "tandem.metrics.enabled" . }}{{ $_ := set $keda "authentication" (include "tandem.metrics" .) }}{{ end -}}
{{- range $key := list "unsafeSsl" "prometheusUrl" -}}
{{- with index $.Values.keda $key }}{{ $_ := set $keda $key . }}{{ end -}}
{{- end -}}
{{- with include "tandem.keda.prometheus" . | fromYaml }}{{ $_ := set $keda "prometheus" . }}{{ end -}}
{{- with $keda }}{{ $_ := set $settings "keda" . }}{{ end -}}
{{ toYaml $settings }}
{{- end }}

{{/* What the operator may do in the namespaces it serves: the requests of tandem.cluster and kopf's watches. */}}
{{- define "tandem.rules" -}}
- apiGroups: [serving.tandem.dev]
  resources: [speculativeinferenceservices]
  verbs: [get, list, watch]
- apiGroups: [serving.tandem.dev]
  resources: [speculativeinferenceservices/status]
  verbs: [patch]
# Children block their owner's deletion in the foreground. Where the admission plugin
# OwnerReferencesPermissionEnforcement is on (OpenShift), only who may do this may say so.
- apiGroups: [serving.tandem.dev]
  resources: [speculativeinferenceservices/finalizers]
  verbs: [update]
# Server-side apply needs create beside patch. What is not deleted here goes with its owner.
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
# A workload of the other kind goes when its successor serves; a policy, when nobody asks for it any more.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# Whoever decides the replicas goes when a service asks for it no more, or for another one.
{{ .Files.Get "files/autoscalers.yaml" -}}
# The cache of models and engines is made once; it is nobody's child, and never changed or deleted.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, create]
# Key pairs of groups are made, and never read.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# Old revisions, and preflights that are done, are deleted.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# Why a pod or a claim waits is in Events alone; they are read once one has waited for a while.
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
{{- end }}
