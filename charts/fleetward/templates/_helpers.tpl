{{/* Labels of every object. Call with (dict "root" $ "component" "gateway"). */}}
{{- define "fleetward.labels" -}}
{{ include "fleetward.selector" . }}
app.kubernetes.io/name: fleetward-{{ .component }}
app.kubernetes.io/part-of: fleetward
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Labels of pods: no version, so that they stay the same over an upgrade. */}}
{{- define "fleetward.podLabels" -}}
{{ include "fleetward.selector" . }}
app.kubernetes.io/name: fleetward-{{ .component }}
app.kubernetes.io/part-of: fleetward
{{- end }}

{{/* The immutable selector. */}}
{{- define "fleetward.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* An image reference from (dict "root" $ "image" .Values.image). */}}
{{- define "fleetward.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What the restricted Pod Security level asks of a pod, and of a container. */}}
{{- define "fleetward.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "fleetward.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The release's own pull secrets, as a part of a pod spec. */}}
{{- define "fleetward.pullSecrets" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . }}}
  {{- end }}
{{- end }}
{{- end }}

{{/* Who a pod is, by the downward API. */}}
{{- define "fleetward.podEnvironment" -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
{{- end }}

{{/* Replicas on different nodes where there are several. */}}
{{- define "fleetward.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "fleetward.selector" . | nindent 6 }}
{{- end }}

{{/* NetworkPolicy rules that operator and gateway share. */}}
{{- define "fleetward.scrapers" -}}
{{- with .Values.metrics.scraperNamespaces }}
- ports: [{protocol: TCP, port: 9090}]
  from:
    - namespaceSelector:
        matchExpressions:
          - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
{{- end }}
{{- end }}
{{- define "fleetward.toApiServer" -}}
# No selector can name the API server, so any address may be called on its ports.
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
