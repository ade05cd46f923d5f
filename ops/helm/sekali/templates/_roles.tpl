{{- /* Every role that is switched on, by name, with what it inherits from defaults, as YAML. */ -}}
{{- define "sekali.roles" -}}
{{- $roles := dict -}}
{{- range $name, $group := .Values.groups -}}
{{- if not (and (hasKey $group "enabled") (not $group.enabled)) -}}
{{- $own := dict "kind" "group" "mode" "deployment" "replicas" 2 "command" (list "sekali-worker") "args" (list $name) -}}
{{- $role := mergeOverwrite (deepCopy $.Values.defaults) $own (deepCopy $group) -}}
{{- $_ := set $role "config" (mergeOverwrite (deepCopy $.Values.config) (deepCopy (get $group "config" | default dict))) -}}
{{- $scaling := dict "enabled" false "minReplicas" 1 "maxReplicas" 6 "fallbackReplicas" 2 "pollingInterval" 15 -}}
{{- $_ := set $scaling "trigger" "prometheus" -}}
{{- $_ := set $scaling "lagSeconds" 60 -}}
{{- $_ := set $scaling "lagRecords" 1000 -}}
{{- $_ := set $role "autoscaling" (mergeOverwrite $scaling (deepCopy (get $group "autoscaling" | default dict))) -}}
{{- $_ := set $roles $name $role -}}
{{- end -}}
{{- end -}}
{{- range $name := list "relay" "console" -}}
{{- $given := get $.Values $name -}}
{{- if $given.enabled -}}
{{- $own := dict "kind" $name "mode" "deployment" "command" (list "sekali") "args" (list $name) -}}
{{- $role := mergeOverwrite (deepCopy $.Values.defaults) $own (deepCopy $given) -}}
{{- $_ := set $role "config" (mergeOverwrite (deepCopy $.Values.config) (deepCopy (get $given "config" | default dict))) -}}
{{- $_ := set $role "autoscaling" (dict "enabled" false) -}}
{{- if eq $name "console" -}}
{{- $listen := dict "console" (dict "listen" (printf "0.0.0.0:%d" (int $given.port))) -}}
{{- $_ := set $role "config" (mergeOverwrite $listen $role.config) -}}
{{- end -}}
{{- $_ := set $roles $name $role -}}
{{- end -}}
{{- end -}}
{{- toYaml $roles -}}
{{- end -}}

{{- /* Environment of a role: {root, config, files, extra}. Texts and lists read the same as in the file. */ -}}
{{- define "sekali.env" -}}
{{- $names := list -}}
{{- range $section, $keys := .config -}}
{{- range $key, $value := $keys -}}
{{- $name := printf "SEKALI_%s__%s" (upper $section) (upper $key) -}}
{{- if kindIs "map" $value -}}
{{- range $inner, $text := $value }}
{{- $inside := printf "%s__%s" $name (upper $inner | replace "." "_") }}
{{- $names = append $names $inside }}
- {name: {{ $inside }}, value: {{ $text | toString | quote }}}
{{- end -}}
{{- else }}
{{- $names = append $names $name }}
- {name: {{ $name }}, value: {{ ternary (toJson $value) (toString $value) (kindIs "slice" $value) | quote }}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .files }}
{{- $name := printf "SEKALI_%s" (upper .config | replace "." "__") }}
{{- if has $name $names }}{{ fail (printf "secretFiles: config.%s is set as well: take one of them away" .config) }}{{ end }}
{{- $names = append $names $name }}
- {name: {{ $name }}, value: {{ printf "/etc/sekali/secrets/%s" .config | quote }}}
{{- end }}
{{- range .static }}
- {name: SEKALI_CONSUMER__GROUP_INSTANCE_ID, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
{{- end }}
{{- range .extra }}
{{- if has .name $names }}
{{- fail (printf "extraEnv: %s is set by config or secretFiles: take one of them away" .name) }}
{{- end }}
- {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Whole numbers of values come back from YAML as floats: 1e+06 would not be read as a number of messages. */ -}}
{{- define "sekali.config" -}}
{{- $whole := dict -}}
{{- range $section, $keys := . -}}
{{- $section_ := dict -}}
{{- range $key, $value := $keys -}}
{{- if and (kindIs "float64" $value) (eq $value (floor $value)) -}}{{- $value = int64 $value -}}{{- end -}}
{{- $_ := set $section_ $key $value -}}
{{- end -}}
{{- $_ := set $whole $section $section_ -}}
{{- end -}}
{{- toYaml $whole -}}
{{- end -}}

{{- define "sekali.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "sekali.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Files from Secrets of a role: the console has one more. */ -}}
{{- define "sekali.files" -}}
{{- $files := .root.Values.secretFiles -}}
{{- with .root.Values.console -}}
{{- if and (eq $.role "console") .tokenSecret.name -}}
{{- $files = append $files (dict "config" "console.token_file" "secret" .tokenSecret.name "key" .tokenSecret.key) -}}
{{- end -}}
{{- end -}}
{{- toYaml $files -}}
{{- end -}}

{{- define "sekali.secretVolume" -}}
{{- with . }}
- name: secrets
  projected:
    defaultMode: 288 # 0440
    sources:
      {{- range . }}
      - secret: {name: {{ .secret | quote }}, items: [{key: {{ .key | quote }}, path: {{ .config | quote }}}]}
      {{- end }}
{{- end }}
{{- end -}}
