{{/* Release's name, with the chart's in it; short enough for the suffixes (63 in all). A Service's name has no dots and
begins with a letter. */}}
{{- define "tandem.fullname" -}}
{{- $chart := include "tandem.name" . -}}
{{- $name := .Release.Name | replace "." "-" -}}
{{- if .Values.fullnameOverride }}{{ $name = .Values.fullnameOverride -}}
{{- else if regexMatch "^[0-9]" $name }}{{ $name = printf "%s-%s" $chart $name -}}
{{- else if not (contains $chart $name) }}{{ $name = printf "%s-%s" $name $chart }}{{ end -}}
{{- $name | trunc 45 | trimSuffix "-" -}}
{{- end }}

{{- define "tandem.name" -}}
{{ .Values.nameOverride | default "tandem" }}
{{- end }}

{{/* Name of the operator's Deployment and roles. */}}
{{- define "tandem.operator" -}}
{{ include "tandem.fullname" . }}-operator
{{- end }}

{{/* Labels that select the operator's pods. Serving pods share the first at most: their component differs. */}}
{{- define "tandem.selector" -}}
app.kubernetes.io/name: {{ include "tandem.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "tandem.labels" -}}
{{- $own := include "tandem.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{ mergeOverwrite (deepCopy (.Values.commonLabels | default dict)) $own | toYaml }}
{{- end }}

{{/* Labels (YAML) with further ones (a map) over them: (list LABELS MAP). */}}
{{- define "tandem.withLabels" -}}
{{ mergeOverwrite (index . 0 | fromYaml) (deepCopy (index . 1 | default dict)) | toYaml }}
{{- end }}

{{/* The account of a component's pods: (list ROOT COMPONENT'S-VALUES NAME). */}}
{{- define "tandem.account" -}}
{{- $given := (index . 1).serviceAccount -}}
{{- if not (or $given.create $given.name) }}{{ fail "serviceAccount.create is false: write serviceAccount.name, an account that is there" }}{{ end -}}
{{ $given.name | default (index . 2) }}
{{- end }}

{{- define "tandem.operator.account" -}}
{{ include "tandem.account" (list . .Values (include "tandem.operator" .)) }}
{{- end }}

{{- define "tandem.metrics.account" -}}
{{ include "tandem.account" (list . .Values.metricsServer (include "tandem.metrics" .)) }}
{{- end }}

{{/* What a component's pods have (YAML): its own values, and the operator's where its own are null: (list ROOT
COMPONENT'S-VALUES SELECTOR). A constraint without labelSelector spreads these pods. */}}
{{- define "tandem.pod" -}}
{{- $root := index . 0 -}}
{{- $pod := dict -}}
{{- range $key := list "priorityClassName" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "podAnnotations" "podLabels" "podSecurityContext" "securityContext" "extraEnv" "extraEnvFrom" "extraVolumes" "extraVolumeMounts" -}}
{{- $own := index (index $ 1) $key -}}
{{- $_ := set $pod $key (kindIs "invalid" $own | ternary (index $root.Values $key) $own) -}}
{{- end -}}
{{- $spread := $pod.topologySpreadConstraints -}}
{{- if kindIs "invalid" $spread }}{{ $spread = list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway") }}{{ end -}}
{{- $constraints := list -}}
{{- range $spread }}{{ $constraints = append $constraints (merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" (index $ 2 | fromYaml)))) }}{{ end -}}
{{- $_ := set $pod "topologySpreadConstraints" $constraints -}}
{{- $_ := set $pod "podSecurityContext" (mergeOverwrite (include "tandem.podSecurity" $root | fromYaml) ($pod.podSecurityContext | default dict)) -}}
{{- $_ := set $pod "securityContext" (mergeOverwrite (include "tandem.containerSecurity" $root | fromYaml) ($pod.securityContext | default dict)) -}}
{{- $labels := mergeOverwrite (deepCopy ($root.Values.commonLabels | default dict)) ($pod.podLabels | default dict) (index $ 2 | fromYaml) -}}
{{- $_ := set $pod "podLabels" $labels -}}
{{ toYaml $pod }}
{{- end }}

{{/* The part of a PodSpec that the components share: (list ROOT POD). */}}
{{- define "tandem.podSpec" -}}
{{- $root := index . 0 -}}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with index . 1 }}
securityContext: {{- toYaml .podSecurityContext | nindent 2 }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Name of the metrics server's objects, and of its Service, for which its certificate is made. */}}
{{- define "tandem.metrics" -}}
{{ include "tandem.fullname" . }}-metrics
{{- end }}

{{- define "tandem.metrics.selector" -}}
app.kubernetes.io/name: {{ include "tandem.name" . | quote }}
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

{{/* Whether the operator reads the pods' metrics itself, for the figures in status: where there is no metrics server, as
it has no right in the whole cluster. */}}
{{- define "tandem.figures.own" -}}
{{- if and .Values.metricsServer.enabled .Values.namespaces }}true{{ end -}}
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

{{/* Refuses values without the images: no public registry has them. */}}
{{- define "tandem.images.check" -}}
{{- $missing := list -}}
{{- if not .Values.image.repository }}{{ $missing = append $missing "image.repository" }}{{ end -}}
{{- range $key := list "servingImage" "fetcherImage" }}{{ if not (index $.Values $key) }}{{ $missing = append $missing $key }}{{ end }}{{ end -}}
{{- with $missing }}{{ fail (printf "%s: not set, and no public registry has Tandem's images: write those of your registry, or install the chart of a release, which names its own (docs/how-to/install.md)" (join ", " .)) }}{{ end -}}
{{- end }}

{{- define "tandem.image" -}}
{{- include "tandem.images.check" . -}}
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

{{/* securityContext of their containers. They write no file, not even a temporary one, outside of volumes. */}}
{{- define "tandem.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Name of the Lease: written into settings and Role alike. */}}
{{- define "tandem.lease" -}}
{{ .Values.lease.name | default (include "tandem.operator" .) }}
{{- end }}

{{/* Refuses a profile of a new name that lacks what the operator asks of it at its start. */}}
{{- define "tandem.profiles.check" -}}
{{- $shipped := .Files.Get "files/profiles.txt" | trim | splitList "\n" -}}
{{- range .Values.profiles -}}
{{- if not (has .name $shipped) -}}
{{- if not (and .engine .engine.kind) }}{{ fail (printf "profiles: %s is none of those that ship with Tandem (%s), so it needs engine.kind: write it, or one of those names" .name (join ", " $shipped)) }}{{ end -}}
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
{{- include "tandem.images.check" . -}}
{{- include "tandem.profiles.check" . -}}
{{- $settings := dict "lease" (dict "name" (include "tandem.lease" .)) -}}
{{- range $key := list "namespaces" "servingImage" "fetcherImage" "clientPeers" "metricsPeers" -}}
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
{{- if .Values.metricsServer.enabled -}}
{{- $server := dict -}}
{{- with .Values.metricsServer -}}
{{- $interval := .intervalSeconds | default 15 -}}
{{- $window := .windowSeconds | default 60 -}}
{{- if lt (float64 $window) (mulf 2 $interval) }}{{ fail (printf "metricsServer.windowSeconds %v is below twice intervalSeconds %v: figures need two readings of each pod" $window $interval) }}{{ end -}}
{{- end -}}
{{- range $key := list "intervalSeconds" "windowSeconds" "prometheusUrl" -}}
{{- with index $.Values.metricsServer $key }}{{ $_ := set $server $key . }}{{ end -}}
{{- end -}}
{{- with .Values.metricsServer.page }}{{ if or (not .enabled) .playground }}{{ $_ := set $server "page" . }}{{ end }}{{ end -}}
{{- with include "tandem.metrics.prometheus" . | fromYaml }}{{ $_ := set $server "prometheus" . }}{{ end -}}
{{- if include "tandem.figures.own" . -}}
{{- $_ := set $settings "reports" (dict "fromPods" true) -}}
{{- else -}}
{{- $_ := set $server "service" (include "tandem.metrics" .) -}}
{{- $_ := set $server "secret" (include "tandem.metrics.secret" .) -}}
{{- if .Values.metricsServer.certificate.secretName }}{{ $_ := set $server "manageCertificate" false }}{{ end -}}
{{- $url := printf "https://%s.%s.svc" (include "tandem.metrics" .) .Release.Namespace -}}
{{- $_ := set $settings "reports" (dict "url" $url "caFile" "/etc/tandem-metrics/ca.crt" "tokenFile" "/etc/tandem-metrics/token") -}}
{{- end -}}
{{- with $server }}{{ $_ := set $settings "metricsServer" . }}{{ end -}}
{{- end -}}
{{- $keda := dict -}}
{{- if include "tandem.metrics.enabled" . }}{{ $_ := set $keda "authentication" (include "tandem.metrics" .) }}{{ end -}}
{{- range $key := list "unsafeSsl" "prometheusUrl" "allowedTriggers" -}}
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
# Children. Server-side apply needs create beside patch. Where OwnerReferencesPermissionEnforcement is on, only those who
# may delete an object may set its owner, as the operator does when it takes up a child that was let go.
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
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
# A route and its pool go when a service asks for them no more.
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
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

{{/* What the notes warn of: what services will wait for, as far as values and cluster show. Without a cluster (`helm
template`) there are no nodes, and nothing is known. In namespaced mode nodes may not be listed. */}}
{{- define "tandem.missing" -}}
{{- if not .Values.namespaces }}
{{- $nodes := (lookup "v1" "Node" "" "").items }}
{{- with $nodes }}
{{- $gpus := 0 }}
{{- $products := 0 }}
{{- range . }}
{{- if hasKey (.status.allocatable | default dict) "nvidia.com/gpu" }}{{ $gpus = add1 $gpus }}{{ end }}
{{- if hasKey (.metadata.labels | default dict) "nvidia.com/gpu.product" }}{{ $products = add1 $products }}{{ end }}
{{- end }}
{{- if not $gpus }}
No node offers nvidia.com/gpu: services wait for one, but those of profile reference. Install NVIDIA's GPU operator, or
its device plugin.
{{- else if not $products }}
No node has the label nvidia.com/gpu.product: placement.gpu.product finds none. Install NVIDIA's GPU Feature Discovery.
{{- end }}
{{- if not (lookup "storage.k8s.io/v1" "StorageClass" "" "").items }}
There is no StorageClass: services that download models or build engines need a claim of their own
(storage.cache.claimName).
{{- end }}
{{- range $group, $need := dict "leaderworkerset.x-k8s.io/v1" "LeaderWorkerSet: services over several nodes wait for it" "keda.sh/v1alpha1" "KEDA: services of autoscaling.source KEDA wait for it" }}
{{- if not ($.Capabilities.APIVersions.Has $group) }}
There is no {{ $need }}.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
