-- Health of a SpeculativeInferenceService for Argo CD (docs/gitops.md): in the ConfigMap argocd-cm under
-- resource.customizations.health.serving.tandem.dev_SpeculativeInferenceService
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the operator has not acted on this spec yet"}
end

local found = {}
for _, condition in ipairs(status.conditions or {}) do
  found[condition.type] = condition
end

local stalled, ready = found.Stalled, found.Ready
if stalled and stalled.status == "True" then
  return {status = "Degraded", message = stalled.reason .. ": " .. stalled.message}
elseif not ready then
  return {status = "Progressing", message = "the operator has not acted on this spec yet"}
elseif ready.status ~= "True" then
  return {status = "Progressing", message = ready.reason .. ": " .. ready.message}
elseif ready.reason == "ScaledToZero" then
  return {status = "Suspended", message = ready.message}
end
return {status = "Healthy", message = ready.message}
