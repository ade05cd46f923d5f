{{- /* Spec of a pod that runs one command of the image: {root, role, spec, name, command, args, restart}. */ -}}
{{- define "sekali.podSpec" -}}
{{- $files := include "sekali.files" . | fromYamlArray -}}
{{- $mounts := .spec.extraVolumeMounts -}}
{{- if $files -}}
{{- $mounts = prepend $mounts (dict "name" "secrets" "mountPath" "/etc/sekali/secrets" "readOnly" true) -}}
{{- end -}}
{{- $static := ternary (list 1) list (and (eq .spec.mode "statefulset") (not .restart)) -}}
{{- $config := include "sekali.config" .spec.config | fromYaml -}}
{{- $env := include "sekali.env" (dict "config" $config "files" $files "extra" .spec.extraEnv "static" $static) -}}
automountServiceAccountToken: false
# Else a Service of the namespace may set variables that look like configuration.
enableServiceLinks: false
{{- with .spec.serviceAccountName }}
serviceAccountName: {{ . | quote }}
{{- end }}
{{- with .spec.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . | quote }}}
  {{- end }}
{{- end }}
{{- with .restart }}
restartPolicy: {{ . }}
{{- else }}
terminationGracePeriodSeconds: {{ .spec.terminationGracePeriodSeconds }}
{{- with .spec.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $selector := dict "matchLabels" (include "sekali.selector" (pick $ "root" "role") | fromYaml) }}
  - {{- mergeOverwrite (dict "labelSelector" $selector) . | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
securityContext: {{- include "sekali.podSecurity" . | nindent 2 }}
{{- with .spec.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and (not .restart) (eq .root.Values.migrate.mode "initContainer") }}
initContainers:
  - name: migrate
    {{- include "sekali.container" (dict "root" .root "spec" .spec "env" $env "mounts" $mounts) | nindent 4 }}
    command: [sekali]
    args: {{ include "sekali.migrateArgs" .root }}
{{- end }}
containers:
  - name: {{ .name }}
    {{- include "sekali.container" (dict "root" .root "spec" .spec "env" $env "mounts" $mounts) | nindent 4 }}
    command: {{ toJson .command }}
    args: {{ toJson .args }}
    {{- if not .restart }}
    {{- if eq .role "console" }}
    ports: [{name: console, containerPort: {{ .spec.port }}}]
    livenessProbe: {tcpSocket: {port: console}, periodSeconds: 10, timeoutSeconds: 3, failureThreshold: 6}
    readinessProbe: {tcpSocket: {port: console}, periodSeconds: 5, timeoutSeconds: 3}
    {{- else }}
    ports: [{name: metrics, containerPort: 9464}]
    # Alive means that the loops turn. An outage of Kafka or PostgreSQL must not restart the fleet, so it is not asked here.
    startupProbe: {httpGet: {path: /livez, port: metrics}, periodSeconds: 2, failureThreshold: 60}
    livenessProbe: {httpGet: {path: /livez, port: metrics}, periodSeconds: 10, timeoutSeconds: 3, failureThreshold: 6}
    readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 5, timeoutSeconds: 3}
    {{- end }}
    {{- end }}
{{- $volumes := concat (include "sekali.secretVolume" $files | fromYamlArray) .spec.extraVolumes }}
{{- with $volumes }}
volumes: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sekali.container" -}}
image: {{ include "sekali.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
env:
  {{- /* A role may say otherwise through extraEnv of another name only. */}}
  - {name: SEKALI_ADMIN__LISTEN, value: "0.0.0.0:9464"}
  {{- .env | trim | nindent 2 }}
{{- with .spec.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
resources: {{- toYaml .spec.resources | nindent 2 }}
securityContext: {{- include "sekali.containerSecurity" . | nindent 2 }}
{{- with .mounts }}
volumeMounts: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sekali.migrateArgs" -}}
{{- ternary (list "migrate" "--only" "outbox") (list "migrate") .Values.migrate.onlyOutbox | toJson -}}
{{- end -}}
