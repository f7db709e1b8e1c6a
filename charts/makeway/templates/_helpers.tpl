{{/* Names are fixed: Leases, ConfigMaps and roles of makeway are one a cluster, and commands and runbooks name them. */}}

{{/* Labels of every object. Give (list $ "component"). */}}
{{- define "makeway.labels" -}}
{{- $ := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" }}
{{ include "makeway.selectorLabels" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
app.kubernetes.io/part-of: makeway
{{- with $.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels and annotations of an object. Give (list $ "component"), with further annotations and then labels, as two
     dicts, where it has any. */}}
{{- define "makeway.metadata" -}}
{{- $ := index . 0 -}}
{{- $more := concat (slice . 2) (list dict dict) -}}
labels:
  {{- include "makeway.labels" . | nindent 2 }}
  {{- with index $more 1 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge dict (index $more 0) $.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Labels and annotations of a component's pods. Give (list $ "component"), with further annotations where it has any. */}}
{{- define "makeway.podMetadata" -}}
{{- $values := include "makeway.componentValues" . | fromYaml -}}
labels:
  {{- include "makeway.labels" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  kubectl.kubernetes.io/default-container: {{ index . 1 }}
  {{- with merge dict ($values.podAnnotations | default dict) (index (append . dict) 2) (index . 0).Values.commonAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* A component's values, as YAML. Give (list $ "component"). */}}
{{- define "makeway.componentValues" -}}
{{- $values := (index . 0).Values -}}
{{- ternary $values.nats.trial (index $values (index . 1)) (eq (index . 1) "nats") | toYaml -}}
{{- end }}

{{/* The name of a component's service account. Give (list $ "component"). */}}
{{- define "makeway.account" -}}
{{- dig "serviceAccount" "name" "" (include "makeway.componentValues" . | fromYaml) | default (printf "makeway-%s" (index . 1)) -}}
{{- end }}

{{/* What selects a component's pods. Give (list $ "component"). */}}
{{- define "makeway.selectorLabels" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: makeway
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Who brings plans to the cluster. */}}
{{- define "makeway.bridge" -}}
{{- .Values.bridge | default "none" -}}
{{- end }}

{{/* `second`, `replacement` or `none`: which scheduler has the plugin. None without bridge=plugin. */}}
{{- define "makeway.scheduler" -}}
{{- ternary .Values.scheduler.install "none" (eq (include "makeway.bridge" .) "plugin") -}}
{{- end }}

{{/* How the scheduler's plugins connect to NATS, as their arguments have it. */}}
{{- define "makeway.pluginNats" -}}
natsURL: {{ include "makeway.nearNatsUrl" $ }}
{{- $files := ternary "/etc/makeway" "/etc/kubernetes/makeway" (eq (include "makeway.scheduler" $) "second") }}
{{- if include "makeway.trialNats" $ }}
username: scheduler
passwordFile: {{ $files }}/nats/password
{{- if include "makeway.trialTls" $ }}
tls:
  caFile: {{ $files }}/nats-client/ca.crt
  certFile: {{ $files }}/nats-client/tls.crt
  keyFile: {{ $files }}/nats-client/tls.key
{{- end }}
{{- else }}
{{- if $.Values.nats.credentials.scheduler }}
credentialsFile: {{ $files }}/nats/nats.creds
{{- else if $.Values.nats.nkeys.scheduler }}
nkeySeedFile: {{ $files }}/nats/nats.nk
{{- end }}
{{- $tls := $.Values.nats.tls }}
{{- $clientCert := include "makeway.natsClientCert" (list $ "scheduler") }}
{{- if or $tls.caSecret $clientCert }}
tls:
  {{- if $tls.caSecret }}
  caFile: {{ $files }}/nats-ca/ca.crt
  {{- end }}
  {{- if $clientCert }}
  certFile: {{ $files }}/nats-client/tls.crt
  keyFile: {{ $files }}/nats-client/tls.key
  {{- end }}
{{- end }}
{{- end }}
subjectPrefix: {{ $.Values.subjectPrefix }}
{{- end }}

{{/* Something can be ordered, so that there are evictors. */}}
{{- define "makeway.evicts" -}}
{{- if ne (include "makeway.bridge" .) "none" }}yes{{ end -}}
{{- end }}

{{/* makeway nominator runs. */}}
{{- define "makeway.nominates" -}}
{{- $bridge := include "makeway.bridge" . -}}
{{- if or (eq $bridge "external") (and (eq $bridge "plugin") .Values.nominator.besidePlugin) }}yes{{ end -}}
{{- end }}

{{/* A shadow scheduler verifies the nominator's plans. */}}
{{- define "makeway.shadows" -}}
{{- if and (include "makeway.nominates" .) (eq (.Values.nominator.verify | default "none") "shadow") }}yes{{ end -}}
{{- end }}

{{/* All that bring plans, with commas. */}}
{{- define "makeway.bridges" -}}
{{- $bridge := include "makeway.bridge" . -}}
{{- if and (eq $bridge "plugin") (include "makeway.nominates" .) }}plugin,external{{ else }}{{ $bridge }}{{ end -}}
{{- end }}

{{/* Components that read the cluster, each with an account of its own; JSON. */}}
{{- define "makeway.components" -}}
{{- $components := list "planner" -}}
{{- if include "makeway.evicts" . -}}
{{- $components = append $components "evictor" -}}
{{- end -}}
{{- if include "makeway.nominates" . -}}
{{- $components = append $components "nominator" -}}
{{- end -}}
{{- if include "makeway.shadows" . -}}
{{- $components = append $components "shadow" -}}
{{- end -}}
{{- if eq (include "makeway.scheduler" .) "second" -}}
{{- $components = append $components "scheduler" -}}
{{- end -}}
{{- $components | toJson -}}
{{- end }}

{{/* An image by tag or digest, from `image.registry` where one is named. Give (list $ image). */}}
{{- define "makeway.image" -}}
{{- $ := index . 0 -}}
{{- $image := index . 1 -}}
{{- $repository := $image.repository -}}
{{- with $.Values.image.registry -}}
{{- $parts := splitList "/" $repository -}}
{{- if and (gt (len $parts) 1) (regexMatch "[.:]|^localhost$" (first $parts)) -}}
{{- $repository = rest $parts | join "/" -}}
{{- end -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository -}}
{{- end -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* A sentence with the remedy, where an image is asked for that no release has published; else nothing.
     `make release-dry-run` sets the annotation in the chart that is pushed. */}}
{{- define "makeway.unpublished" -}}
{{- if ne (index .Chart.Annotations "makeway.dev/published") "true" -}}
{{- $missing := list -}}
{{- with .Values.image -}}
{{- if and (eq .repository "ghcr.io/makeway/makeway") (not .tag) (not .digest) -}}
{{- $missing = append $missing "image.repository" -}}
{{- end -}}
{{- end -}}
{{- if or (ne (include "makeway.scheduler" .) "none") (include "makeway.shadows" .) -}}
{{- with .Values.scheduler.image -}}
{{- if and (eq .repository "ghcr.io/makeway/makeway-scheduler") (not .tag) (not .digest) -}}
{{- $missing = append $missing "scheduler.image.repository" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $missing -}}
The images of makeway {{ .Chart.AppVersion }} are not published yet: build and push them as docs/install.md says, and set {{ join " and " $missing }}.
{{- end -}}
{{- end -}}
{{- end }}

{{/* Minor versions of Kubernetes that makeway-scheduler is built for, newest first; JSON. */}}
{{- define "makeway.kubernetesVersions" -}}
{{- list "1.37" "1.36" "1.35" | toJson -}}
{{- end }}

{{/* The cluster's minor version of Kubernetes, such as 1.37. */}}
{{- define "makeway.clusterVersion" -}}
{{- with .Capabilities.KubeVersion -}}
{{- printf "%s.%s" .Major (regexFind "[0-9]+" (toString .Minor)) -}}
{{- end -}}
{{- end }}

{{/* The image of makeway-scheduler for its minor version of Kubernetes. Fails where a cluster of another one is asked.
     Kinds among the API versions come from a cluster, or from --api-versions as Argo CD gives them: without them
     KubeVersion is what Helm was built with, and says nothing. */}}
{{- define "makeway.schedulerImage" -}}
{{- $wanted := .Values.scheduler.kubernetesVersion -}}
{{- $cluster := include "makeway.clusterVersion" . -}}
{{- $built := include "makeway.kubernetesVersions" . | fromJsonArray -}}
{{- if and (.Capabilities.APIVersions.Has "apps/v1/Deployment") (ne $wanted $cluster) -}}
{{- $remedy := printf "there is no makeway-scheduler for it, only for %s. Set bridge=none or bridge=external, without nominator.verify=shadow, and see docs/versions.md" (join ", " $built) -}}
{{- if has $cluster $built -}}
{{- $remedy = printf "set scheduler.kubernetesVersion=%s" $cluster -}}
{{- end -}}
{{- fail (printf "scheduler.kubernetesVersion is %s, and this cluster is Kubernetes %s: %s" $wanted .Capabilities.KubeVersion.Version $remedy) -}}
{{- end -}}
{{- $image := .Values.scheduler.image -}}
{{- $tag := $image.tag | default (printf "%s-k%s" .Chart.AppVersion $wanted) -}}
{{- include "makeway.image" (list . (dict "repository" $image.repository "digest" $image.digest "tag" $tag)) -}}
{{- end }}

{{/* The NATS that this chart runs is wanted. */}}
{{- define "makeway.trialNats" -}}
{{- if not .Values.nats.url }}yes{{ end -}}
{{- end }}

{{/* Where NATS is, without a password. */}}
{{- define "makeway.natsUrl" -}}
{{- .Values.nats.url | default (printf "nats://makeway-nats.%s.svc:4222" .Release.Namespace) -}}
{{- end }}

{{/* The NATS that this chart runs speaks TLS alone. */}}
{{- define "makeway.trialTls" -}}
{{- if and (include "makeway.trialNats" .) .Values.nats.trial.tls.enabled }}yes{{ end -}}
{{- end }}

{{/* Users of the NATS that this chart runs, in the parts' account and in the viewers'; JSON. */}}
{{- define "makeway.natsParts" -}}
{{- $users := list "planner" "streams" -}}
{{- if include "makeway.evicts" . }}{{ $users = append $users "evictor" }}{{ end -}}
{{- if eq (include "makeway.bridge" .) "plugin" }}{{ $users = append $users "scheduler" }}{{ end -}}
{{- if include "makeway.nominates" . }}{{ $users = append $users "nominator" }}{{ end -}}
{{- if include "makeway.shadows" . }}{{ $users = append $users "shadow" }}{{ end -}}
{{- $users | toJson -}}
{{- end }}
{{- define "makeway.natsViewers" -}}
{{- $users := list "viewer" -}}
{{- range .Values.nats.consumers }}{{ $users = append $users (printf "consumer-%s" .name) }}{{ end -}}
{{- $users | toJson -}}
{{- end }}

{{/* All of them; JSON. */}}
{{- define "makeway.natsUsers" -}}
{{- concat (include "makeway.natsParts" . | fromJsonArray) (include "makeway.natsViewers" . | fromJsonArray) | toJson -}}
{{- end }}

{{/* The variable by which NATS' configuration knows a user's password. */}}
{{- define "makeway.natsPasswordName" -}}
{{ upper . | replace "-" "_" }}_PASSWORD
{{- end }}

{{/* The named consumers, as `makeway streams` takes them. */}}
{{- define "makeway.natsConsumers" -}}
{{- $texts := list -}}
{{- range .Values.nats.consumers }}{{ $texts = append $texts (printf "%s=%s" .name (join "," .streams)) }}{{ end -}}
{{- join ";" $texts -}}
{{- end }}

{{/* Signatures are used. */}}
{{- define "makeway.signatures" -}}
{{- if ne .Values.signatures.mode "off" }}yes{{ end -}}
{{- end }}

{{/* The Secret of a part's private keys. Give (list $ "component"). */}}
{{- define "makeway.signingSecret" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 -}}
{{- index $.Values.signatures.secrets $part | default (printf "makeway-signing-%s" $part) -}}
{{- end }}

{{/* Kinds of messages whose keys are made in the cluster, with commas: those of the parts that there are. */}}
{{- define "makeway.madeKeys" -}}
{{- if and .Values.signatures.generate (include "makeway.signatures" .) -}}
order,control{{ if include "makeway.evicts" . }},outcome{{ end }}
{{- end -}}
{{- end }}

{{/* Secrets that are made in the cluster, by `makeway streams --keep`; JSON. */}}
{{- define "makeway.madeSecrets" -}}
{{- $names := list -}}
{{- if include "makeway.trialNats" . -}}
{{- range include "makeway.natsUsers" . | fromJsonArray }}{{ $names = append $names (printf "makeway-nats-%s" .) }}{{ end -}}
{{- $names = append $names "makeway-nats-passwords" -}}
{{- if include "makeway.madeCertificates" . }}{{ $names = concat $names (list "makeway-nats-server" "makeway-nats-authority") }}{{ end -}}
{{- end -}}
{{- $signers := dict "order" "planner" "control" "planner" "outcome" "evictor" -}}
{{- range without (splitList "," (include "makeway.madeKeys" .)) "" -}}
{{- $names = append $names (printf "makeway-signing-%s" (get $signers .)) -}}
{{- end -}}
{{- $names | uniq | toJson -}}
{{- end }}

{{/* Certificates of this chart's NATS are made, and not named. */}}
{{- define "makeway.madeCertificates" -}}
{{- if and (include "makeway.trialTls" .) (not .Values.nats.trial.tls.serverSecret) }}yes{{ end -}}
{{- end }}

{{/* A part finds its certificates for this chart's NATS in a Secret; the streams' keeper has those that it makes itself.
     Give (list $ "component"). */}}
{{- define "makeway.natsCertificates" -}}
{{- $ := index . 0 -}}
{{- if and (include "makeway.trialTls" $) (or (ne (index . 1) "streams") (not (include "makeway.madeCertificates" $))) }}yes{{ end -}}
{{- end }}

{{/* How a part that signs nothing verifies: arguments. */}}
{{- define "makeway.verifyingArguments" -}}
{{- if include "makeway.signatures" . -}}
- --signatures={{ .Values.signatures.mode }}
{{- end }}
{{- end }}

{{/* How planner and evictor sign and verify: arguments. */}}
{{- define "makeway.signatureArguments" -}}
{{- if include "makeway.signatures" . -}}
- --signatures={{ .Values.signatures.mode }}
- --signing-keys=/etc/makeway/signing
{{- end }}
{{- end }}

{{/* Where planner, evictor and nominator send traces: arguments. */}}
{{- define "makeway.tracingArguments" -}}
{{- with .Values.tracing.endpoint -}}
- --otlp-endpoint={{ . }}
{{- end }}
{{- end }}

{{/* The port of the collector of traces. */}}
{{- define "makeway.tracingPort" -}}
{{- $url := urlParse .Values.tracing.endpoint -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end }}

{{/* How planner, evictor and the streams' job log in to NATS: environment; where the job makes its own login, it says
     only where NATS is. Give (list $ "component"). */}}
{{- define "makeway.natsEnvironment" -}}
{{- $ := index . 0 -}}
{{- $component := index . 1 -}}
- name: MAKEWAY_NATS_URL
{{- if include "makeway.trialNats" $ }}
{{- if eq $component "streams" }}
  value: {{ include "makeway.natsUrl" $ }}
{{- else if include "makeway.natsPasswordFile" . }}
  value: {{ include "makeway.nearNatsUrl" $ }}
- name: MAKEWAY_NATS_USER
  value: {{ $component }}
- name: MAKEWAY_NATS_PASSWORD_FILE
  value: /etc/makeway/nats/password
{{- else }}
  valueFrom:
    secretKeyRef: { name: "makeway-nats-{{ $component }}", key: url }
{{- end }}
{{- if include "makeway.natsCertificates" . }}
- name: MAKEWAY_NATS_TLS_CA
  value: /etc/makeway/nats-client/ca.crt
- name: MAKEWAY_NATS_TLS_CERT
  value: /etc/makeway/nats-client/tls.crt
- name: MAKEWAY_NATS_TLS_KEY
  value: /etc/makeway/nats-client/tls.key
{{- end }}
{{- else }}
  value: {{ $.Values.nats.url | quote }}
{{- if index $.Values.nats.credentials $component }}
- name: MAKEWAY_NATS_CREDS
  value: /etc/makeway/nats/nats.creds
{{- else if index $.Values.nats.nkeys $component }}
- name: MAKEWAY_NATS_NKEY
  value: /etc/makeway/nats/nats.nk
{{- end }}
{{- if $.Values.nats.tls.caSecret }}
- name: MAKEWAY_NATS_TLS_CA
  value: /etc/makeway/nats-ca/ca.crt
{{- end }}
{{- if include "makeway.natsClientCert" . }}
- name: MAKEWAY_NATS_TLS_CERT
  value: /etc/makeway/nats-client/tls.crt
- name: MAKEWAY_NATS_TLS_KEY
  value: /etc/makeway/nats-client/tls.key
{{- end }}
{{- end }}
{{- end }}

{{/* Where a component finds its files for NATS and its signing keys; empty where it needs none.
     Give (list $ "component"), or (list $ "component" "prefix-") with what its volumes' names begin with. */}}
{{- define "makeway.natsMounts" -}}
{{- $ := index . 0 -}}
{{- $prefix := index (append . "") 2 -}}
{{- if include "makeway.natsPasswordFile" (list $ (index . 1)) }}
- { name: {{ $prefix }}nats-login, mountPath: /etc/makeway/nats, readOnly: true }
{{- end }}
{{- if include "makeway.natsCertificates" (list $ (index . 1)) }}
- { name: {{ $prefix }}nats-client, mountPath: /etc/makeway/nats-client, readOnly: true }
{{- end }}
{{- if and (include "makeway.signatures" $) (has (index . 1) (list "planner" "evictor")) }}
- { name: {{ $prefix }}signing, mountPath: /etc/makeway/signing, readOnly: true }
{{- end }}
{{- if $.Values.nats.url -}}
{{- if include "makeway.natsLogin" . }}
- { name: {{ $prefix }}nats-credentials, mountPath: /etc/makeway/nats, readOnly: true }
{{- end }}
{{- if $.Values.nats.tls.caSecret }}
- { name: {{ $prefix }}nats-ca, mountPath: /etc/makeway/nats-ca, readOnly: true }
{{- end }}
{{- if include "makeway.natsClientCert" . }}
- { name: {{ $prefix }}nats-client, mountPath: /etc/makeway/nats-client, readOnly: true }
{{- end }}
{{- end }}
{{- end }}

{{/* The Secrets behind those files. Give the same. */}}
{{- define "makeway.natsVolumes" -}}
{{- $ := index . 0 -}}
{{- $prefix := index (append . "") 2 -}}
{{- $login := printf "makeway-nats-%s" (index . 1) -}}
{{- if include "makeway.natsPasswordFile" (list $ (index . 1)) }}
- name: {{ $prefix }}nats-login
  secret: { secretName: {{ $login }}, items: [{ key: password, path: password }] }
{{- end }}
{{- if include "makeway.natsCertificates" (list $ (index . 1)) }}
- name: {{ $prefix }}nats-client
  secret: { secretName: {{ $.Values.nats.trial.tls.clientSecret | default $login }}, items: [{ key: ca.crt, path: ca.crt }, { key: tls.crt, path: tls.crt }, { key: tls.key, path: tls.key }] }
{{- end }}
{{- if and (include "makeway.signatures" $) (has (index . 1) (list "planner" "evictor")) }}
- name: {{ $prefix }}signing
  secret: { secretName: {{ include "makeway.signingSecret" . }} }
{{- end }}
{{- if $.Values.nats.url -}}
{{- with include "makeway.natsLogin" . }}
- name: {{ $prefix }}nats-credentials
  secret: { secretName: {{ . }} }
{{- end }}
{{- with $.Values.nats.tls.caSecret }}
- name: {{ $prefix }}nats-ca
  secret: { secretName: {{ . }} }
{{- end }}
{{- with include "makeway.natsClientCert" . }}
- name: {{ $prefix }}nats-client
  secret: { secretName: {{ . }} }
{{- end }}
{{- end }}
{{- end }}

{{/* The Secret by which a user logs in to an existing NATS: with a credentials file, or the seed of an nkey; empty for
     none. Give (list $ "user"). */}}
{{- define "makeway.natsLogin" -}}
{{- $ := index . 0 -}}
{{- if $.Values.nats.url -}}
{{ index $.Values.nats.credentials (index . 1) | default (index $.Values.nats.nkeys (index . 1)) }}
{{- end -}}
{{- end }}

{{/* The Secret with the client certificate that a user shows an existing NATS; empty for none. Give (list $ "user"). */}}
{{- define "makeway.natsClientCert" -}}
{{- $tls := (index . 0).Values.nats.tls -}}
{{ index ($tls.clientCertSecrets | default dict) (index . 1) | default $tls.clientCertSecret }}
{{- end }}

{{/* The service account of a component that asks the API server nothing, where the chart makes it.
     Give (list $ "component"). */}}
{{- define "makeway.idleAccount" -}}
{{- $ := index . 0 -}}
{{- $account := (include "makeway.componentValues" . | fromYaml).serviceAccount -}}
{{- if $account.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "makeway.account" . }}
  namespace: {{ $.Release.Namespace }}
  {{- include "makeway.metadata" (list $ (index . 1) $account.annotations) | nindent 2 }}
automountServiceAccountToken: false
---
{{- end }}
{{- end }}

{{/* What a component's container has besides: environment and mounts; and its pod: volumes. Give the component's values. */}}
{{- define "makeway.extraEnvironment" -}}
{{- with .extraEnv }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "makeway.extraMounts" -}}
{{- with .extraVolumeMounts }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "makeway.extraVolumes" -}}
{{- with .extraVolumes }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* Service accounts of components as subjects of a FlowSchema. Give (list $ "component" ...). */}}
{{- define "makeway.flowSubjects" -}}
{{- $ := index . 0 -}}
{{- range rest . }}
- kind: ServiceAccount
  serviceAccount: { namespace: {{ $.Release.Namespace }}, name: {{ include "makeway.account" (list $ .) | quote }} }
{{- end }}
{{- end }}

{{/* Of a pod: OpenShift gives each namespace users and groups of its own, and refuses a fixed one. */}}
{{- define "makeway.podSecurityContext" -}}
{{- $context := deepCopy .Values.podSecurityContext -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}
{{- range $key := list "runAsUser" "runAsGroup" "fsGroup" -}}
{{- if eq (get $context $key | default 65532 | int) 65532 -}}
{{- $context = omit $context $key -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $context -}}
{{- end }}

{{- define "makeway.securityContext" -}}
{{- toYaml .Values.securityContext -}}
{{- end }}

{{/* What the pods of all components have alike: account, network, security, placement. Give (list $ "component"). */}}
{{- define "makeway.podSpec" -}}
{{- $ := index . 0 -}}
{{- $component := . -}}
{{- $values := include "makeway.componentValues" . | fromYaml -}}
serviceAccountName: {{ include "makeway.account" . }}
{{- if $.Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with $.Values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" $.Values.hostNetwork) }}
dnsPolicy: {{ . }}
{{- end }}
enableServiceLinks: false
priorityClassName: {{ $.Values.priorityClassName }}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
securityContext:
  {{- include "makeway.podSecurityContext" $ | nindent 2 }}
{{- with $.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $values $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- if $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else if and (hasKey $values "replicas") (ne (index . 1) "streams") }}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "makeway.selectorLabels" $component | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- end }}

{{/* A file of rbac/ or admission/, in this release's namespace and with its service accounts. Give
     (list $ "component" "directory/file"). The files are plain manifests of namespace makeway-system, which
     `kubectl apply` takes as they are. */}}
{{- define "makeway.manifests" -}}
{{- $ := index . 0 -}}
{{- $text := $.Files.Get (printf "%s.yaml" (index . 2)) -}}
{{- $component := . -}}
{{- $account := (include "makeway.componentValues" . | fromYaml).serviceAccount | default dict -}}
{{- $kept := list -}}
{{- range splitList "---\n" $text -}}
{{- $own := regexMatch "(?m)^kind: ServiceAccount$" . -}}
{{- if or (not $own) (ne (toString $account.create) "false") -}}
{{- $metadata := include "makeway.metadata" (list $ (index $component 1) (ternary ($account.annotations | default dict) dict $own)) | indent 2 -}}
{{- $kept = append $kept (replace "\nmetadata:\n" (printf "\nmetadata:\n%s\n" $metadata) .) -}}
{{- end -}}
{{- end -}}
{{- $text = join "---\n" $kept -}}
{{- range list "planner" "evictor" "nominator" "shadow" "scheduler" "ui" -}}
{{- $name := include "makeway.account" (list $ .) -}}
{{- $text = regexReplaceAll (printf "(kind: ServiceAccount\n *(metadata:\n(  [^n].*\n|    .*\n)*)? *name: )makeway-%s\n" .) $text (printf "${1}%s\n" $name) -}}
{{- $text = replace (printf "serviceaccount:makeway-system:makeway-%s'" .) (printf "serviceaccount:makeway-system:%s'" $name) $text -}}
{{- end -}}
{{- replace "makeway-system" $.Release.Namespace $text }}
{{- end }}

{{/* The same of rbac/. Give (list $ "component" "file"). */}}
{{- define "makeway.rbac" -}}
{{- include "makeway.manifests" (list (index . 0) (index . 1) (printf "rbac/%s" (index . 2))) }}
{{- end }}

{{/* Data of ConfigMap makeway-policy. Where it is not managed, it belongs to whoever has edited it since. */}}
{{- define "makeway.policy" -}}
{{- $policy := dict "policy.yaml" (toYaml .Values.policy.document) }}
{{- if not .Values.policy.managed }}
{{- with lookup "v1" "ConfigMap" .Release.Namespace "makeway-policy" }}
{{- $policy = .data }}
{{- end }}
{{- end }}
{{- toYaml $policy }}
{{- end }}

{{/* A user's NATS permissions under the subject prefix, or exports and imports. Give (list $ "user" "permissions")
     or (list $ "exports" "accounts"); JSON. */}}
{{- define "makeway.natsPermissions" -}}
{{- $ := index . 0 -}}
{{- $prefix := $.Values.subjectPrefix -}}
{{- $text := $.Files.Get (printf "files/nats-%s.yaml" (index . 2))
    | replace "prefix.v1." (printf "%s.v1." $prefix)
    | replace "PREFIX_" (printf "%s_" ($prefix | replace "." "_" | upper)) -}}
{{- index (fromYaml $text) (index . 1) | toRawJson -}}
{{- end }}

{{/* What of the permissions and accounts is for named consumers: `publish` and `subscribe` of one, `exports` and
     `imports` of all; JSON. Give (list $ consumers "key"). */}}
{{- define "makeway.natsConsumerRules" -}}
{{- $ := index . 0 -}}
{{- $key := index . 2 -}}
{{- $prefix := $.Values.subjectPrefix -}}
{{- $rules := list -}}
{{- range $consumer := index . 1 }}
{{- range $stream := $consumer.streams }}
{{- $text := $.Files.Get "files/nats-consumer.yaml"
    | replace "prefix.v1." (printf "%s.v1." $prefix)
    | replace "PREFIX_ORDERS" (printf "%s_%s" ($prefix | replace "." "_" | upper) (upper $stream))
    | replace "a-name" $consumer.name -}}
{{- $rules = concat $rules (index (fromYaml $text) $key) -}}
{{- end }}
{{- end }}
{{- $rules | uniq | toRawJson -}}
{{- end }}
