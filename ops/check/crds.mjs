// Validates the custom resources among manifests with the API types of their operators.
// usage: node crds.mjs DOCUMENTS.json, from where the packages are installed
import fs from "node:fs";

import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";

const types = { ScaledObject, PodMonitor, PrometheusRule };

const counts = {};
for (const document of JSON.parse(fs.readFileSync(process.argv[2], "utf8"))) {
  const type = types[document.kind];
  if (!type) continue;
  new type(document).validate();
  counts[document.kind] = (counts[document.kind] ?? 0) + 1;
}
// A check that accepts everything would be none.
const broken = { ScaledObject: { pollingInterval: "15s" }, PodMonitor: { podMetricsEndpoints: 1 }, PrometheusRule: { groups: 1 } };
for (const [kind, spec] of Object.entries(broken)) {
  let refused = false;
  try {
    new types[kind]({ metadata: { name: "x" }, spec }).validate();
  } catch {
    refused = true;
  }
  if (!refused) throw new Error(`${kind}: accepts ${JSON.stringify(spec)}`);
  if (!counts[kind]) throw new Error(`no ${kind} among the manifests`);
}
console.log(JSON.stringify(counts));
