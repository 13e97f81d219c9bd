// The report of weft plan as JSON. Keys are stable: programs read them.
#include <nlohmann/json.hpp>

#include "tools/plan_report.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// A list with `to_object` applied to every item.
template <class T, class ToObject>
Json to_array(const std::vector<T>& list, ToObject to_object) {
  Json array = Json::array();
  for (const T& entry : list) array.push_back(to_object(entry));
  return array;
}

Json time_object(const PlanTime& time) {
  return {{"seconds", time.seconds},
          {"compute_seconds", time.compute_seconds},
          {"collective_seconds", time.collective_seconds},
          {"exposed_seconds", time.exposed_seconds()}};
}

Json pass_object(const PassReport& pass) {
  return {{"pass", pass.pass},
          {"disabled", pass.disabled},
          {"changed", pass.changed},
          {"seconds", pass.milliseconds * 1e-3},
          {"nodes_before", pass.nodes_before},
          {"nodes_after", pass.nodes_after},
          {"note", pass.note}};
}

Json collective_object(const CollectiveVolume& volume) {
  return {{"kind", volume.kind},
          {"axis", volume.axis},
          {"ranks", volume.ranks},
          {"calls", volume.calls},
          {"smallest_bytes", volume.smallest},
          {"largest_bytes", volume.largest},
          {"sent_bytes", volume.sent_bytes},
          {"packed_bytes", volume.packed_bytes}};
}

Json op_object(const OpTime& time) {
  return {{"op", time.op}, {"seconds", time.seconds}};
}

Json bucket_object(const NamedBytes& bucket) {
  return {{"name", bucket.name}, {"bytes", bucket.bytes}, {"count", bucket.count}};
}

Json buffer_object(const BufferGroup& group) {
  return {{"name", group.name},
          {"kind", buffer_kind_name(group.kind)},
          {"bytes", group.bytes},
          {"count", group.count}};
}

Json program_object(const ProgramSummary& program) {
  Json phases = Json::object(), kinds = Json::object();
  for (const PhaseSteps& phase : program.phases) phases[phase_name(phase.phase)] = phase.steps;
  for (int i = 0; i < kBufferKinds; ++i) {
    kinds[buffer_kind_name(static_cast<BufferKind>(i))] =
        program.peak.bytes[static_cast<size_t>(i)];
  }
  Json exposed = Json::array();
  for (const auto& [axis, seconds] : program.time.exposed_by_axis) {
    exposed.push_back({{"axis", axis}, {"seconds", seconds}});
  }
  return {{"name", program_name(program.kind)},
          {"steps", program.steps},
          {"phases", phases},
          {"recomputed", program.recomputed},
          {"flops", program.flops},
          {"memory_traffic_bytes", program.traffic_bytes},
          {"time", time_object(program.time)},
          {"ops", to_array(program.ops, op_object)},
          {"collectives", to_array(program.collectives, collective_object)},
          {"exposed", exposed},
          {"packing_bytes", program.packing_bytes},
          {"peak",
           {{"bytes", program.peak.total},
            {"step", program.peak.step},
            {"label", program.peak_label},
            {"kinds", kinds}}}};
}

Json plan_object(const PlanSummary& plan) {
  Json shared = Json::array(), weights, replanned;
  const auto axes = [](const std::vector<MeshAxis>& mesh_axes) {
    Json list = Json::array();
    for (const MeshAxis& axis : mesh_axes) {
      list.push_back({{"axis", axis.name}, {"ranks", axis.size}});
    }
    return list;
  };
  for (const SharedSpace& space : plan.shared) {
    shared.push_back(
        {{"axis", space.axis}, {"ranks", plan.mesh.axis_size(space.axis)}, {"bytes", space.bytes}});
  }
  if (plan.low_weights) {
    weights = {{"dtype", dtype_name(plan.low_weights->dtype)},
               {"kept_bytes", plan.low_weights->kept_bytes}};
  }
  if (const Replanning& again = plan.replanning; again.times > 0) {
    replanned = {{"times", again.times},
                 {"reserved_bytes", again.reserved_bytes},
                 {"asked_prefetch", again.asked_prefetch ? Json(*again.asked_prefetch) : Json()}};
  }
  return {{"name", plan.name},
          {"backend", plan.backend},
          {"mesh", axes(plan.mesh.axes)},
          {"expert_mesh", axes(plan.mesh.expert_axes)},
          {"params", plan.params},
          {"states", plan.states},
          {"inputs", plan.inputs},
          {"outputs", plan.outputs},
          {"streams", plan.streams},
          {"events", plan.events},
          {"arena_bytes", plan.arena_bytes},
          {"persistent_bytes", plan.persistent_bytes},
          {"shared_spaces", shared},
          {"replanned", replanned},
          {"low_precision_weights", weights},
          {"buckets", to_array(plan.buckets, bucket_object)},
          {"programs", to_array(plan.programs, program_object)},
          {"buffers_at_peak", to_array(plan.largest, buffer_object)}};
}

Json step_object(const StepForecast& step) {
  Json object = time_object(step.time);
  object["micro_batches"] = step.micro_batches;
  object["tokens_per_second"] = step.tokens_per_second;
  object["model_flops_per_token"] = step.flops_per_token;
  object["peak_flops"] = step.peak_flops ? Json(*step.peak_flops) : Json();
  object["mfu"] = step.mfu ? Json(*step.mfu) : Json();
  return object;
}

Json memory_object(const MemoryNeed& memory) {
  return {{"plan_bytes", memory.plan_bytes},
          {"limit_bytes", memory.limit_bytes},
          {"driver_and_libraries_bytes", memory.driver_bytes},
          {"fits", memory.fits()}};
}

}  // namespace

std::string to_json(const PlanReport& report) {
  const ModelSpec& model = report.model;
  Json alternative;
  if (report.alternative) {
    alternative = {{"change", report.alternative->change},
                   {"plan_bytes", report.alternative->rank_bytes},
                   {"fits", report.alternative->fits}};
  }
  const Json object = {{"model",
                        {{"name", model.model},
                         {"flavor", model.flavor},
                         {"parameters", report.parameters},
                         {"layers", model.n_layers},
                         {"width", model.dim},
                         {"heads", model.n_heads},
                         {"vocabulary", model.vocab_size}}},
                       {"ranks", report.ranks},
                       {"device", report.device},
                       {"graph_nodes", report.graph_nodes},
                       {"passes", to_array(report.passes, pass_object)},
                       {"plan", plan_object(report.plan)},
                       {"step", step_object(report.step)},
                       {"memory", memory_object(report.memory)},
                       {"alternative", alternative},
                       {"mesh_warning", report.mesh_warning},
                       {"compile_seconds", report.compile_seconds}};
  return object.dump(2);
}

}  // namespace weft
