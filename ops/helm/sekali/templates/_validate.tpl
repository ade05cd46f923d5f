{{- /* Refuses combinations that lose work, stand still or surprise. Each refusal says what to change. */ -}}
{{- define "sekali.validate" -}}
{{- $roles := include "sekali.roles" . | fromYaml -}}
{{- if not $roles -}}
{{- fail "nothing would run: name a worker group in groups, or set relay.enabled or console.enabled" -}}
{{- end -}}
{{- range $key := list "kafka.brokers" "postgres.url" -}}
{{- $at := splitList "." $key -}}
{{- $value := get (get $.Values.config (first $at) | default dict) (last $at) -}}
{{- $file := printf "%s_file" $key -}}
{{- $given := false -}}
{{- range $.Values.secretFiles }}{{ if eq .config $file }}{{ $given = true }}{{ end }}{{ end -}}
{{- range $.Values.defaults.extraEnv }}{{ if hasPrefix (printf "SEKALI_%s" (upper $key | replace "." "__")) .name }}{{ $given = true }}{{ end }}{{ end -}}
{{- if not (or $value $given $.Values.defaults.extraEnvFrom) -}}
{{- fail (printf "config.%s is missing: every role needs it" $key) -}}
{{- end -}}
{{- end -}}
{{- $url := get (.Values.config.postgres | default dict) "url" | default "" -}}
{{- if regexMatch "^[a-z]+://[^/@]*:[^/@]*@" $url -}}
{{- fail "config.postgres.url holds a password: take it out, put it into a Secret and name that in secretFiles as postgres.password_file" -}}
{{- end -}}
{{- $connections := 0 -}}
{{- range $name, $role := $roles -}}
{{- $where := ternary (printf "groups.%s" $name) $name (eq $role.kind "group") -}}
{{- $consumer := get $role.config "consumer" | default dict -}}
{{- $most := int $role.replicas -}}
{{- if eq $role.kind "group" -}}
{{- include "sekali.validateGroup" (dict "where" $where "role" $role "consumer" $consumer "root" $) -}}
{{- if $role.autoscaling.enabled }}{{ $most = int $role.autoscaling.maxReplicas }}{{ end -}}
{{- end -}}
{{- $pool := int (get (get $role.config "postgres" | default dict) "pool_max_connections" | default 8) -}}
{{- $connections = add $connections (mul $most $pool) -}}
{{- end -}}
{{- with .Values.limits.databaseConnections -}}
{{- if gt (int $connections) (int .) -}}
{{- fail (printf "all roles at their largest open %d connections, and limits.databaseConnections leaves %d: lower replicas, autoscaling.maxReplicas or config.postgres.pool_max_connections" (int $connections) (int .)) -}}
{{- end -}}
{{- end -}}
{{- if .Values.console.enabled -}}
{{- if not (or .Values.console.tokenSecret.name .Values.console.behindTrustedProxy) -}}
{{- fail "console.enabled without a login: name a Secret in console.tokenSecret, or set console.behindTrustedProxy when a proxy in front says who comes in" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.migrate.applyTopics (not (eq .Values.migrate.mode "hook")) -}}
{{- fail "migrate.applyTopics needs migrate.mode=hook: topics are made by a hook after the tables" -}}
{{- end -}}
{{- end -}}

{{- /* {where, role, consumer, root} */ -}}
{{- define "sekali.validateGroup" -}}
{{- $drain := include "sekali.seconds" (get .consumer "drain_timeout" | default "25s") | float64 -}}
{{- $grace := int .role.terminationGracePeriodSeconds -}}
{{- if lt (float64 $grace) (addf $drain 5.0) -}}
{{- fail (printf "%s: terminationGracePeriodSeconds is %d and drain_timeout %gs: the pod would be killed while it finishes its messages; set it to %d or more" .where $grace $drain (int (ceil (addf $drain 5.0)))) -}}
{{- end -}}
{{- range $key := list "group" "topics" -}}
{{- if not (get $.consumer $key) -}}
{{- fail (printf "%s: config.consumer.%s is missing" $.where $key) -}}
{{- end -}}
{{- end -}}
{{- $partitions := int (get .role "partitions" | default 0) -}}
{{- $scaling := .role.autoscaling -}}
{{- if eq .role.mode "statefulset" -}}
{{- if $scaling.enabled -}}
{{- fail (printf "%s: mode=statefulset has static members, and autoscaling would leave the partitions of each pod that it removes without an owner for session_timeout; use mode=deployment with autoscaling" .where) -}}
{{- end -}}
{{- $session := include "sekali.seconds" (get .consumer "session_timeout" | default "45s") | float64 -}}
{{- if and (ne (get .consumer "group_protocol" | default "classic") "consumer") (lt $session (float64 $grace)) -}}
{{- fail (printf "%s: session_timeout is %gs and terminationGracePeriodSeconds %d: a static member that restarts would be taken for gone; set config.consumer.session_timeout to %ds or more" .where $session $grace $grace) -}}
{{- end -}}
{{- end -}}
{{- if and $partitions (not $scaling.enabled) (gt (int .role.replicas) $partitions) -}}
{{- fail (printf "%s: replicas is %d and partitions %d: the replicas beyond have nothing to do" .where (int .role.replicas) $partitions) -}}
{{- end -}}
{{- if $scaling.enabled -}}
{{- if not $partitions -}}
{{- fail (printf "%s: autoscaling needs partitions, the number of partitions of the topic with most: more replicas have nothing to do" .where) -}}
{{- end -}}
{{- range $key := list "minReplicas" "maxReplicas" "fallbackReplicas" -}}
{{- if gt (int (get $scaling $key)) $partitions -}}
{{- fail (printf "%s: autoscaling.%s is %d and partitions %d: the replicas beyond have nothing to do" $.where $key (int (get $scaling $key)) $partitions) -}}
{{- end -}}
{{- end -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "%s: autoscaling.minReplicas is %d and maxReplicas %d" .where (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
{{- if and (eq $scaling.trigger "prometheus") (not .root.Values.autoscaling.prometheusAddress) -}}
{{- fail (printf "%s: autoscaling.trigger=prometheus needs autoscaling.prometheusAddress at the top level" .where) -}}
{{- end -}}
{{- end -}}
{{- end -}}
