// Prints and parses plans, in one file so that the two cannot drift apart.
//
//   plan gpt2
//   backend cpu
//   mesh dp=4
//   streams compute, gather, reduce
//   events 1
//   arena 8192
//   persistent 4096
//   shared dp 1024
//   buffer b0 param 1024 at 0 persistent "layers.0.attention.wo"
//   buffer b1 activation 4096 at 4096 last 3..7 "l0.attn.out"
//   buffer b2 gathered 1024 at 0 shared dp last 0..9 "layers.0.attention.wo.full"
//   param "layers.0.attention.wo" b0: f32[16,16]
//   program last
//   step 0 compute matmul.gemm(b2: f32[64,16], b0: f32[16,16]; ta=false) -> b1: f32[64,16]
//       workspace b3 wait e0 signal e1 flops 32768 seconds 1e-06 recomputed # layers.0 fwd
//
// A step is one line. Optional parts are omitted if empty. All attributes are printed, so that a
// plan keeps its meaning when a default changes.
#include "plan/text.h"

#include <algorithm>

#include "base/hash.h"
#include "plan/scanner.h"

namespace weft {
namespace {

constexpr std::array kPhases = {Phase::Forward, Phase::Backward, Phase::Optimizer};

std::string quoted(const std::string& text) {
  return to_string(Attr(text));
}

std::string print_ref(const TensorRef& ref) {
  const std::string offset = ref.offset == 0 ? "" : cat("+", ref.offset);
  return cat("b", ref.buffer, offset, ": ", to_string(TensorType{ref.dtype, ref.shape, {}}));
}

std::string print_refs(const std::vector<TensorRef>& refs) {
  std::vector<std::string> items;
  for (const TensorRef& ref : refs) items.push_back(print_ref(ref));
  return join(items, ", ");
}

// " flat dp_shard "a" f32[4,8], "b" f32[3]", " part of "a" f32[4,8] @S(0:tp)", or "".
std::string print_members(const Binding& binding) {
  if (binding.members.empty()) return "";
  std::vector<std::string> members;
  for (const FlatMember& member : binding.members) {
    members.push_back(
        cat(quoted(member.name), " ",
            to_string(TensorType{binding.tensor.dtype, member.shape, member.placement})));
  }
  return cat(binding.axis.empty() ? " part of " : cat(" flat ", binding.axis, " "),
             join(members, ", "));
}

std::string print_buffer(const Plan& plan, size_t index) {
  const Buffer& buffer = plan.buffers[index];
  const std::string space =
      buffer.shared < 0
          ? ""
          : cat("shared ", plan.shared.at(static_cast<size_t>(buffer.shared)).axis, " ");
  const std::string life =
      buffer.persistent ? "persistent"
                        : cat(program_name(buffer.program), " ", buffer.first, "..", buffer.last);
  return cat("buffer b", index, " ", buffer_kind_name(buffer.kind), " ", buffer.bytes, " at ",
             buffer.offset, " ", space, life, " ", quoted(buffer.name), "\n");
}

std::string print_attrs(const Step& step) {
  const OpDef* op = find_op(step.op);
  CHECK(op != nullptr, "no op ", step.op);
  const auto& specs = op->parsed().attrs;
  std::string text;
  for (size_t i = 0; i < specs.size(); ++i) {
    text += cat(i == 0 ? "; " : ", ", specs[i].name, "=", to_string(step.attrs.at(i)));
  }
  return text;
}

std::string print_step(const Plan& plan, size_t index, const Step& step) {
  std::string text =
      cat("step ", index, " ", plan.streams.at(step.stream), " ", step.op, ".", step.kernel, "(",
          print_refs(step.operands), print_attrs(step), ") -> ", print_refs(step.results));
  if (step.workspace != -1) text += cat(" workspace b", step.workspace);
  for (const int64_t event : step.waits) text += cat(" wait e", event);
  if (step.signal != -1) text += cat(" signal e", step.signal);
  if (step.flops != 0) text += " flops " + format_double(step.flops);
  if (step.seconds != 0) text += " seconds " + format_double(step.seconds);
  if (step.recomputed) text += " recomputed";
  text += cat(" # ", step.path, step.path.empty() ? "" : " ", phase_name(step.phase), "\n");
  return text;
}

// Parses line by line; the first word of a line is its kind.
class Parser {
 public:
  Plan parse(std::string_view text) {
    int64_t number = 0;
    for (const std::string& line : split(text, '\n')) {
      ++number;
      try {
        if (!trim(line).empty()) parse_line(line);
      } catch (const UserError& error) {
        throw UserError(ExitCode::InputFile, cat("line ", number, ": ", error.what()));
      }
    }
    INPUT_CHECK(!plan_.name.empty(), "line ", number, ": the text has no plan");
    return std::move(plan_);
  }

 private:
  void parse_line(std::string_view line) {
    Scanner scan(line);
    const std::string key = scan.word();
    INPUT_CHECK(!plan_.name.empty() || key == "plan", in_quotes(key),
                " found, expected a plan that starts with \"plan NAME\"");
    if (key == "plan") {
      plan_.name = scan.rest();
      return;
    }
    if (key == "backend") {
      plan_.backend = scan.rest();
      return;
    }
    if (key == "tuning") {
      plan_.tuning = scan.rest();
      return;
    }
    if (key == "tf32") {
      plan_.tf32 = true;
      return;
    }
    if (key == "step") {
      parse_step(scan);
    } else if (key == "buffer") {
      parse_buffer(scan);
    } else {
      parse_setting(key, scan);
    }
    scan.end();
  }

  void parse_setting(const std::string& key, Scanner& scan) {
    if (key == "mesh") {
      plan_.mesh = parse_mesh(scan.rest());
    } else if (key == "streams") {
      do plan_.streams.push_back(scan.word());
      while (scan.accept(","));
    } else if (key == "events") {
      plan_.num_events = scan.integer();
    } else if (key == "arena") {
      plan_.arena_bytes = scan.integer();
    } else if (key == "persistent") {
      plan_.persistent_bytes = scan.integer();
    } else if (key == "shared") {
      std::string axis = scan.word();
      plan_.shared.push_back({std::move(axis), scan.integer()});
    } else if (key == "program") {
      program_ = &plan_.programs[static_cast<size_t>(parse_program(scan))];
    } else {
      parse_binding(key, scan);
    }
  }

  void parse_binding(const std::string& key, Scanner& scan) {
    auto& list = key == "input"   ? plan_.inputs
                 : key == "param" ? plan_.params
                 : key == "state" ? plan_.states
                                  : plan_.outputs;
    INPUT_CHECK(&list != &plan_.outputs || key == "output", "unknown line ", in_quotes(key));
    Binding binding;
    binding.name = scan.quoted();
    binding.tensor = parse_ref(scan);
    const bool flat = scan.accept("flat");
    if (flat) binding.axis = scan.word();
    if (flat || scan.accept("part of")) {
      do {
        std::string member = scan.quoted();
        TensorType type = parse_type(scan.type());
        binding.members.push_back(
            {std::move(member), std::move(type.shape), std::move(type.placement)});
      } while (scan.accept(","));
    }
    if (&list == &plan_.states) binding.state = parse_state_key(binding.name);
    list.push_back(std::move(binding));
  }

  static ProgramKind parse_program(Scanner& scan) {
    const std::string name = scan.word();
    for (int i = 0; i < kPrograms; ++i) {
      if (program_name(static_cast<ProgramKind>(i)) == name) return static_cast<ProgramKind>(i);
    }
    throw UserError(ExitCode::InputFile, cat(in_quotes(name), " is not micro, last or eval"));
  }

  static BufferKind parse_kind(Scanner& scan) {
    const std::string name = scan.word();
    for (int i = 0; i < kBufferKinds; ++i) {
      if (buffer_kind_name(static_cast<BufferKind>(i)) == name) return static_cast<BufferKind>(i);
    }
    throw UserError(ExitCode::InputFile, cat("unknown kind of buffer ", in_quotes(name)));
  }

  static TensorRef parse_ref(Scanner& scan) {
    TensorRef ref;
    ref.buffer = scan.numbered('b');
    if (scan.accept("+")) ref.offset = scan.integer();
    scan.expect(":");
    TensorType type = parse_type(scan.type());
    ref.dtype = type.dtype;
    ref.shape = std::move(type.shape);
    return ref;
  }

  int64_t find_shared(const std::string& axis) const {
    const auto found = std::find_if(plan_.shared.begin(), plan_.shared.end(),
                                    [&](const SharedSpace& space) { return space.axis == axis; });
    INPUT_CHECK(found != plan_.shared.end(), "a buffer is in the shared space of ", in_quotes(axis),
                ", which has no line \"shared\"");
    return found - plan_.shared.begin();
  }

  void parse_buffer(Scanner& scan) {
    const int64_t index = scan.numbered('b');
    INPUT_CHECK(index == static_cast<int64_t>(plan_.buffers.size()), "buffer b", index,
                " found, expected b", plan_.buffers.size());
    Buffer buffer;
    buffer.kind = parse_kind(scan);
    buffer.bytes = scan.integer();
    scan.expect("at");
    buffer.offset = scan.integer();
    if (scan.accept("shared")) buffer.shared = find_shared(scan.word());
    buffer.persistent = scan.accept("persistent");
    if (!buffer.persistent) {
      buffer.program = parse_program(scan);
      buffer.first = scan.integer();
      scan.expect("..");
      buffer.last = scan.integer();
    }
    buffer.name = scan.quoted();
    plan_.buffers.push_back(std::move(buffer));
  }

  void parse_step(Scanner& scan) {
    INPUT_CHECK(program_ != nullptr, "found a step before the first \"program\"");
    const int64_t index = scan.integer();
    INPUT_CHECK(index == static_cast<int64_t>(program_->size()), "step ", index,
                " found, expected step ", program_->size());
    Step step;
    const std::string stream = scan.word();
    const auto found = std::find(plan_.streams.begin(), plan_.streams.end(), stream);
    INPUT_CHECK(found != plan_.streams.end(), "unknown stream ", in_quotes(stream));
    step.stream = found - plan_.streams.begin();
    const std::string name = scan.word();
    const size_t dot = name.find('.');
    INPUT_CHECK(dot != std::string::npos, in_quotes(name), " is not op.kernel");
    step.op = name.substr(0, dot);
    step.kernel = name.substr(dot + 1);
    scan.expect("(");
    if (!scan.next_is(";") && !scan.next_is(")")) step.operands = parse_refs(scan);
    step.attrs = parse_attrs(step.op, scan);
    scan.expect(")");
    scan.expect("->");
    if (scan.next_is("b")) step.results = parse_refs(scan);
    parse_options(step, scan);
    program_->push_back(std::move(step));
  }

  static std::vector<TensorRef> parse_refs(Scanner& scan) {
    std::vector<TensorRef> refs;
    do refs.push_back(parse_ref(scan));
    while (scan.accept(","));
    return refs;
  }

  // Attributes by name, in any order; missing ones take their defaults.
  static Attrs parse_attrs(const std::string& op_name, Scanner& scan) {
    const OpDef* op = find_op(op_name);
    INPUT_CHECK(op != nullptr, "unknown op ", in_quotes(op_name));
    const auto& specs = op->parsed().attrs;
    Attrs attrs;
    for (const AttrSpec& spec : specs) attrs.push_back(spec.default_value);
    std::vector<bool> given(specs.size(), false);
    if (scan.accept(";")) {
      do {
        const std::string name = scan.word();
        const auto spec = std::find_if(specs.begin(), specs.end(),
                                       [&](const AttrSpec& s) { return s.name == name; });
        INPUT_CHECK(spec != specs.end(), op_name, " has no attribute ", in_quotes(name));
        scan.expect("=");
        const size_t at = spec - specs.begin();
        attrs[at] = parse_attr(scan.literal(), spec->default_value);
        given[at] = true;
      } while (scan.accept(","));
    }
    for (size_t i = 0; i < specs.size(); ++i) {
      INPUT_CHECK(given[i] || !specs[i].required, op_name, " needs the attribute ",
                  in_quotes(specs[i].name));
    }
    return attrs;
  }

  static void parse_options(Step& step, Scanner& scan) {
    while (!scan.accept("#")) {
      const std::string key = scan.word();
      if (key == "workspace") {
        step.workspace = scan.numbered('b');
      } else if (key == "wait") {
        step.waits.push_back(scan.numbered('e'));
      } else if (key == "signal") {
        step.signal = scan.numbered('e');
      } else if (key == "flops") {
        step.flops = scan.number();
      } else if (key == "seconds") {
        step.seconds = scan.number();
      } else {
        INPUT_CHECK(key == "recomputed", "unknown part ", in_quotes(key), " of a step");
        step.recomputed = true;
      }
    }
    const std::string where = scan.rest();
    const size_t space = where.rfind(' ');
    if (space != std::string::npos) step.path = where.substr(0, space);
    const std::string name = space == std::string::npos ? where : where.substr(space + 1);
    const auto phase = std::find_if(kPhases.begin(), kPhases.end(),
                                    [&](Phase p) { return phase_name(p) == name; });
    INPUT_CHECK(phase != kPhases.end(), in_quotes(name), " is not fwd, bwd or opt");
    step.phase = *phase;
  }

  Plan plan_;
  std::vector<Step>* program_ = nullptr;
};

}  // namespace

std::string print_plan(const Plan& plan) {
  std::string text = cat("plan ", plan.name, "\nbackend ", plan.backend, "\n");
  if (!plan.tuning.empty()) text += cat("tuning ", plan.tuning, "\n");
  if (plan.tf32) text += "tf32\n";
  if (!plan.mesh.axes.empty()) text += cat("mesh ", to_string(plan.mesh), "\n");
  text += cat("streams ", join(plan.streams, ", "), "\nevents ", plan.num_events, "\narena ",
              plan.arena_bytes, "\npersistent ", plan.persistent_bytes, "\n");
  for (const SharedSpace& space : plan.shared) {
    text += cat("shared ", space.axis, " ", space.bytes, "\n");
  }
  for (size_t i = 0; i < plan.buffers.size(); ++i) text += print_buffer(plan, i);
  const auto print_bindings = [&](std::string_view key, const std::vector<Binding>& bindings) {
    for (const Binding& binding : bindings) {
      text += cat(key, " ", quoted(binding.name), " ", print_ref(binding.tensor),
                  print_members(binding), "\n");
    }
  };
  print_bindings("input", plan.inputs);
  print_bindings("param", plan.params);
  print_bindings("state", plan.states);
  print_bindings("output", plan.outputs);
  for (int i = 0; i < kPrograms; ++i) {
    const auto program = static_cast<ProgramKind>(i);
    const std::vector<Step>& steps = plan.program(program);
    if (!steps.empty()) text += cat("program ", program_name(program), "\n");
    for (size_t s = 0; s < steps.size(); ++s) text += print_step(plan, s, steps[s]);
  }
  return text;
}

Plan parse_plan(std::string_view text) {
  return Parser().parse(text);
}

uint64_t hash(const Plan& plan) {
  return hash_text(print_plan(plan));
}

}  // namespace weft
