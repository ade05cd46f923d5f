{{- /* At most 31 characters, so that with a role of 20 a StatefulSet has the 52 that its pods' labels allow. */ -}}
{{- define "sekali.fullname" -}}
{{- $chart := default .Chart.Name .Values.nameOverride -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) -}}
{{- $name = default $name .Values.fullnameOverride -}}
{{- if gt (len $name) 31 -}}
{{- $name = printf "%s-%s" (trunc 22 $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "sekali.selector" -}}
app.kubernetes.io/name: sekali
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .role | quote }}
{{- end -}}

{{- /* Labels of an object that belongs to no role. A chart's version may hold a +, a label may not. */ -}}
{{- define "sekali.labels" -}}
app.kubernetes.io/name: sekali
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sekali.roleLabels" -}}
{{ include "sekali.labels" .root }}
app.kubernetes.io/component: {{ .role | quote }}
{{- end -}}

{{- define "sekali.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Seconds of a duration such as 25s, 1m 30s or 500ms. */ -}}
{{- define "sekali.seconds" -}}
{{- $total := 0.0 -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "min" 60.0 "h" 3600.0 "d" 86400.0 "day" 86400.0 "days" 86400.0 -}}
{{- range regexFindAll "[0-9]+ *[a-z]+" (toString .) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- if not (hasKey $units $unit) }}{{ fail (printf "%q is no duration: write 25s, 2m or 1h" .) }}{{ end -}}
{{- $total = addf $total (mulf (regexFind "[0-9]+" . | float64) (get $units $unit)) -}}
{{- end -}}
{{- $total -}}
{{- end -}}
