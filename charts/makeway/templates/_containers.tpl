{{/* Where the planner runs: `deployment`, `sidecar` in the pod of a scheduler of this chart, or `static`, in a static pod
     beside the cluster's own scheduler. */}}
{{- define "makeway.plannerPlace" -}}
{{- if eq (.Values.planner.placement | default "") "sidecar" -}}
{{- ternary "static" "sidecar" (eq (include "makeway.scheduler" .) "replacement") -}}
{{- else -}}
deployment
{{- end -}}
{{- end }}

{{/* Where this chart's NATS runs: the same, in the planner's pod; empty where it runs none. */}}
{{- define "makeway.natsPlace" -}}
{{- if include "makeway.trialNats" . -}}
{{- ternary (include "makeway.plannerPlace" .) "deployment" (eq (.Values.nats.placement | default "") "sidecar") -}}
{{- end -}}
{{- end }}

{{/* NATS runs in the planner's pod. */}}
{{- define "makeway.natsSidecar" -}}
{{- if has (include "makeway.natsPlace" .) (list "sidecar" "static") }}yes{{ end -}}
{{- end }}

{{/* The component whose pods run this chart's NATS. */}}
{{- define "makeway.natsComponent" -}}
{{- get (dict "sidecar" "scheduler" "static" "planner") (include "makeway.natsPlace" .) | default "nats" -}}
{{- end }}

{{/* Where scheduler and planner find NATS: in their own pod, or as everybody does. */}}
{{- define "makeway.nearNatsUrl" -}}
{{- if include "makeway.natsSidecar" . -}}
nats://127.0.0.1:4222
{{- else -}}
{{- include "makeway.natsUrl" . -}}
{{- end -}}
{{- end }}

{{/* A component logs in to the NATS of this chart by a file with its password: scheduler and shadow always, as their
     configuration names one; the planner where no Secret has its URL, or a static pod may refer to none.
     Give (list $ "component"). */}}
{{- define "makeway.natsPasswordFile" -}}
{{- $ := index . 0 -}}
{{- $component := index . 1 -}}
{{- $near := or (include "makeway.natsSidecar" $) (eq (include "makeway.plannerPlace" $) "static") -}}
{{- if and (include "makeway.trialNats" $) (or (has $component (list "scheduler" "shadow")) (and (eq $component "planner") $near)) }}yes{{ end -}}
{{- end }}

{{/* The planner's container. */}}
{{- define "makeway.plannerContainer" -}}
{{- $values := .Values.planner -}}
{{- $place := include "makeway.plannerPlace" . -}}
{{- $port := ternary "metrics" "planner-metrics" (eq $place "deployment") -}}
- name: planner
  {{- with include "makeway.unpublished" . }}
  # {{ . }}
  {{- end }}
  image: {{ include "makeway.image" (list . .Values.image) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - planner
    - --leader-elect
    - --lease-namespace={{ .Release.Namespace }}
    {{- if not (include "makeway.evicts" .) }}
    # Nothing it ordered would be carried out.
    - --mode=observe
    {{- end }}
    - --config-namespace={{ .Release.Namespace }}
    - --subject-prefix={{ .Values.subjectPrefix }}
    - --log-level={{ .Values.log.level }}
    - --log-format={{ .Values.log.format }}
    {{- if eq $place "static" }}
    # It is in the network of the node. kubeadm's own parts listen there alone too.
    - --listen=127.0.0.1:9464
    {{- end }}
    {{- with include "makeway.signatureArguments" . }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with include "makeway.tracingArguments" . }}
    {{- . | nindent 4 }}
    {{- end }}
  env:
    {{- include "makeway.natsEnvironment" (list . "planner") | nindent 4 }}
    {{- with include "makeway.extraEnvironment" $values }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- if eq $place "static" }}
    - name: MAKEWAY_KUBECONFIG
      value: /etc/makeway/kubeconfig
    {{- end }}
  ports:
    - { name: {{ $port }}, containerPort: 9464 }
  startupProbe:
    httpGet: { path: /healthz, port: {{ $port }}{{ if eq $place "static" }}, host: 127.0.0.1{{ end }} }
    periodSeconds: 2
    failureThreshold: 60
  livenessProbe:
    httpGet: { path: /healthz, port: {{ $port }}{{ if eq $place "static" }}, host: 127.0.0.1{{ end }} }
    timeoutSeconds: 5
  readinessProbe:
    httpGet: { path: /readyz, port: {{ $port }}{{ if eq $place "static" }}, host: 127.0.0.1{{ end }} }
    periodSeconds: 5
    timeoutSeconds: 5
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  securityContext:
    {{- include "makeway.securityContext" . | nindent 4 }}
  {{- if eq $place "static" }}
  volumeMounts:
    - { name: planner, mountPath: /etc/makeway, readOnly: true }
  {{- else if eq $place "sidecar" }}
  volumeMounts:
    # Its own account, not the scheduler's, whose token would let it bind pods.
    - { name: planner-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true }
    {{- with list (include "makeway.natsMounts" (list . "planner" "planner-")) (include "makeway.extraMounts" $values) | join "\n" | trim }}
    {{- . | nindent 4 }}
    {{- end }}
  {{- else }}
  {{- with list (include "makeway.natsMounts" (list . "planner")) (include "makeway.extraMounts" $values) | join "\n" | trim }}
  volumeMounts:
    {{- . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}

{{/* The container of NATS. */}}
{{- define "makeway.natsContainer" -}}
{{- $values := .Values.nats.trial -}}
{{- $static := eq (include "makeway.natsPlace" .) "static" -}}
- name: nats
  image: {{ include "makeway.image" (list . $values.image) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  command: [sh]
  args: [/etc/nats/start.sh]
  {{- if not $static }}
  {{- with include "makeway.extraEnvironment" $values }}
  env:
    {{- . | nindent 4 }}
  {{- end }}
  {{- end }}
  ports:
    - { name: nats, containerPort: 4222 }
  startupProbe:
    exec: { command: [wget, -q, -O, /dev/null, "http://127.0.0.1:8222/healthz"] }
    periodSeconds: 2
    timeoutSeconds: 5
    failureThreshold: 60
  livenessProbe:
    exec: { command: [wget, -q, -O, /dev/null, "http://127.0.0.1:8222/healthz?js-server-only=true"] }
    timeoutSeconds: 5
  readinessProbe:
    exec: { command: [wget, -q, -O, /dev/null, "http://127.0.0.1:8222/healthz?js-server-only=true"] }
    periodSeconds: 5
    timeoutSeconds: 5
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  securityContext:
    {{- include "makeway.securityContext" . | nindent 4 }}
  volumeMounts:
    - { name: {{ include "makeway.natsVolume" (list . "configuration") }}, mountPath: /etc/nats, readOnly: true }
    {{- if $values.tls.enabled }}
    - { name: {{ include "makeway.natsVolume" (list . "tls") }}, mountPath: /etc/nats-tls, readOnly: true }
    {{- end }}
    - { name: {{ include "makeway.natsVolume" (list . "data") }}, mountPath: /data }
    {{- if not $static }}
    {{- with include "makeway.extraMounts" $values }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- end }}
{{- end }}

{{/* A volume's name: in a pod with other containers it says whose it is. Give (list $ "name"). */}}
{{- define "makeway.natsVolume" -}}
{{- ternary (printf "nats-server-%s" (index . 1)) (index . 1) (ne (include "makeway.natsSidecar" (index . 0)) "") -}}
{{- end }}

{{/* Volumes of NATS from objects of this chart, without its data. */}}
{{- define "makeway.natsServerVolumes" -}}
- name: {{ include "makeway.natsVolume" (list . "configuration") }}
  projected: { sources: [{ configMap: { name: makeway-nats } }, { secret: { name: makeway-nats-passwords } }] }
{{- if .Values.nats.trial.tls.enabled }}
- name: {{ include "makeway.natsVolume" (list . "tls") }}
  secret: { secretName: {{ .Values.nats.trial.tls.serverSecret | default "makeway-nats-server" }} }
{{- end }}
{{- end }}

{{/* What has NATS started anew: it reads permissions when it starts; passwords and certificates it reads again. */}}
{{- define "makeway.natsChecksums" -}}
{{- $values := .Values.nats.trial -}}
checksum/permissions: {{ list .Values.subjectPrefix (.Files.Get "files/nats-permissions.yaml") (.Files.Get "files/nats-accounts.yaml") (.Files.Get "files/nats-consumer.yaml") .Values.nats.consumers $values.tls | toJson | sha256sum }}
{{- end }}

{{/* The static pod that runs the planner beside the cluster's own scheduler. It may refer to no object of the API, so
     that it starts without one: all its files are the node's. */}}
{{- define "makeway.staticPod" -}}
apiVersion: v1
kind: Pod
metadata:
  name: makeway-planner
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "makeway.labels" (list . "planner") | nindent 4 }}
spec:
  hostNetwork: true
  {{- if not (include "makeway.natsSidecar" .) }}
  # It runs in the host's network, and NATS may be a Service.
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  enableServiceLinks: false
  priority: 2000001000
  priorityClassName: system-node-critical
  securityContext:
    {{- include "makeway.podSecurityContext" . | nindent 4 }}
  containers:
    {{- include "makeway.plannerContainer" . | nindent 4 }}
    {{- if include "makeway.natsSidecar" . }}
    {{- include "makeway.natsContainer" . | nindent 4 }}
    {{- end }}
  volumes:
    - name: planner
      hostPath: { path: /etc/kubernetes/makeway/planner, type: Directory }
    {{- if include "makeway.natsSidecar" . }}
    - name: {{ include "makeway.natsVolume" (list . "configuration") }}
      hostPath: { path: /etc/kubernetes/makeway/nats-server, type: Directory }
    {{- if .Values.nats.trial.tls.enabled }}
    - name: {{ include "makeway.natsVolume" (list . "tls") }}
      hostPath: { path: /etc/kubernetes/makeway/nats-server/tls, type: Directory }
    {{- end }}
    - name: {{ include "makeway.natsVolume" (list . "data") }}
      {{- if .Values.nats.trial.storage.persistent }}
      hostPath: { path: /var/lib/makeway-nats, type: Directory }
      {{- else }}
      emptyDir: {}
      {{- end }}
    {{- end }}
{{- end }}

{{/* Those of the components that have pods of their own; JSON. */}}
{{- define "makeway.podComponents" -}}
{{- $components := include "makeway.components" . | fromJsonArray -}}
{{- if ne (include "makeway.plannerPlace" .) "deployment" -}}
{{- $components = without $components "planner" -}}
{{- end -}}
{{- $components | toJson -}}
{{- end }}

{{/* What the pods of this chart ask of nodes, such as `550m CPU, 704Mi of memory`; empty where a request is in other units
     than cores, m, Mi and Gi. Two parts in one pod count twice, as their containers do. */}}
{{- define "makeway.requests" -}}
{{- $cpu := 0.0 -}}
{{- $memory := 0.0 -}}
{{- $known := true -}}
{{- $parts := concat (include "makeway.components" . | fromJsonArray) (ternary (list "nats") list (ne (include "makeway.natsPlace" .) "")) (ternary (list "streams") list .Values.streams.job) (ternary (list "ui") list .Values.ui.enabled) -}}
{{- range $part := $parts -}}
{{- $values := include "makeway.componentValues" (list $ $part) | fromYaml -}}
{{- $replicas := ternary 1 (get $values "replicas" | default 1 | int) (has $part (list "streams" "nats")) -}}
{{- if and (eq $part "planner") (ne (include "makeway.plannerPlace" $) "deployment") -}}
{{- $replicas = ternary (int $.Values.scheduler.replicas) 1 (eq (include "makeway.plannerPlace" $) "sidecar") -}}
{{- end -}}
{{- $requests := dig "resources" "requests" dict $values -}}
{{- $text := get $requests "cpu" | default "0" | toString -}}
{{- $known = and $known (regexMatch "^[0-9.]+m?$" $text) -}}
{{- $cpu = addf $cpu (mulf (trimSuffix "m" $text | float64) (ternary 1.0 1000.0 (hasSuffix "m" $text)) $replicas) -}}
{{- $text = get $requests "memory" | default "0Mi" | toString -}}
{{- $known = and $known (regexMatch "^[0-9.]+[MG]i$" $text) -}}
{{- $memory = addf $memory (mulf (regexFind "^[0-9.]+" $text | float64) (ternary 1024.0 1.0 (hasSuffix "Gi" $text)) $replicas) -}}
{{- end -}}
{{- if $known -}}
{{ $cpu }}m CPU, {{ $memory }}Mi of memory
{{- end -}}
{{- end }}
