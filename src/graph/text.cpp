// Prints and parses graphs, in one file so that the two cannot drift apart.
//
//   graph NAME(mesh AXIS=SIZE, ...) {
//     %x = input "x" : f32[2,8]
//     %y, %y.rstd = rms_norm(%x, %w; eps=1e-06) : f32[2,8], f32[2]  # layers.0.attention_norm fwd
//     return loss=%y
//   }
#include "graph/text.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "graph/call_text.h"
#include "graph/sources.h"

namespace weft {

namespace {

bool is_name_char(char c) {
  // '+' is that of joint axes: %coordinate.dp_shard+tp.
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_.-+").find(c) != std::string_view::npos;
}

// Position of `wanted` outside quotes, or npos.
size_t find_outside_text(std::string_view text, char wanted) {
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == wanted) {
      return i;
    }
  }
  return std::string_view::npos;
}

std::string_view value_name(std::string_view text) {
  text = trim(text);
  USER_CHECK(text.size() > 1 && text[0] == '%', in_quotes(text), " is not a value such as %x");
  for (char c : text.substr(1)) {
    USER_CHECK(is_name_char(c), "value name ", in_quotes(text), " has the character '", c, "'");
  }
  return text.substr(1);
}

class Parser {
 public:
  Parser(std::string_view text, std::string file) : file_(std::move(file)) {
    if (text.ends_with('\n')) text.remove_suffix(1);
    lines_ = split(text, '\n');
  }

  Graph parse() {
    try {
      return parse_lines();
    } catch (const UserError& error) {
      const size_t line = std::min(line_ + 1, lines_.size());  // the last, if the text ends early
      throw UserError(ExitCode::InputFile, cat(file_, ":", line, ": ", error.what()));
    }
  }

 private:
  Graph parse_lines() {
    skip_blank();
    Graph graph = parse_header(current());
    ++line_;
    while (true) {
      skip_blank();
      std::string_view line = current();
      if (line.starts_with("return")) {
        parse_return(graph, line.substr(6));
        break;
      }
      parse_node(graph, line);
      ++line_;
    }
    ++line_;
    skip_blank();
    USER_CHECK(current() == "}", in_quotes(current()), " found where \"}\" should close the graph");
    for (++line_; line_ < lines_.size(); ++line_) {
      USER_CHECK(trim(lines_[line_]).empty(), "text after the end of the graph");
    }
    return graph;
  }

  std::string_view current() const {
    USER_CHECK(line_ < lines_.size(), "the text ends before the graph does");
    return trim(lines_[line_]);
  }

  void skip_blank() {
    while (line_ < lines_.size() && trim(lines_[line_]).empty()) ++line_;
  }

  static Graph parse_header(std::string_view line) {
    USER_CHECK(line.starts_with("graph ") && line.ends_with("{"), in_quotes(line),
               " found, expected a graph that starts with \"graph NAME {\"");
    std::string_view head = trim(line.substr(6, line.size() - 7));
    Mesh mesh;
    size_t open = head.find('(');
    if (open != std::string_view::npos) {
      std::string_view inside = head.substr(open + 1);
      USER_CHECK(inside.starts_with("mesh ") && inside.ends_with(")"), in_quotes(head),
                 " is not of the form NAME(mesh axis=size)");
      mesh = parse_mesh(inside.substr(5, inside.size() - 6));
      head = trim(head.substr(0, open));
    }
    USER_CHECK(!head.empty(), "the graph has no name");
    return Graph(std::string(head), mesh);
  }

  struct Tail {
    std::string path;
    Phase phase = Phase::Forward;
    bool recomputed = false;
  };

  // Parses "layers.3.attention bwd recomputed"; only the phase is required.
  static Tail parse_tail(std::string_view text) {
    Tail tail;
    bool has_phase = false;
    for (const auto& word : split(trim(text), ' ')) {
      if (word == "fwd" || word == "bwd" || word == "opt") {
        tail.phase = word == "fwd"   ? Phase::Forward
                     : word == "bwd" ? Phase::Backward
                                     : Phase::Optimizer;
        has_phase = true;
      } else if (word == "recomputed" && has_phase) {
        tail.recomputed = true;
      } else {
        USER_CHECK(!has_phase && tail.path.empty(), "\"#", text, "\" is not \"# PATH PHASE\"");
        tail.path = word;
      }
    }
    return tail;
  }

  void parse_node(Graph& graph, std::string_view line) {
    Tail tail;
    size_t hash_mark = find_outside_text(line, '#');
    if (hash_mark != std::string_view::npos) {
      tail = parse_tail(line.substr(hash_mark + 1));
      line = trim(line.substr(0, hash_mark));
    }
    size_t equals = find_outside_text(line, '=');
    USER_CHECK(equals != std::string_view::npos, in_quotes(line),
               " is not \"%name = op(...) : type\"");
    std::vector<std::string_view> names = split_top_level(line.substr(0, equals), ',');
    std::string_view rest = trim(line.substr(equals + 1));
    size_t op_end = 0;
    while (op_end < rest.size() && is_name_char(rest[op_end])) ++op_end;
    const OpDef* op = find_op(rest.substr(0, op_end));
    USER_CHECK(op != nullptr, unknown_op(rest.substr(0, op_end)));
    rest = trim(rest.substr(op_end));
    Node* node = op->traits.source ? parse_source(graph, *op, names, rest, tail)
                                   : parse_call(graph, *op, names, rest, tail);
    node->recomputed = tail.recomputed;
  }

  static void check_new(const Graph& graph, std::string_view name) {
    USER_CHECK(graph.find_value(name) == nullptr, "%", name, " is defined twice");
  }

  static Node* parse_source(Graph& graph, const OpDef& op,
                            const std::vector<std::string_view>& names, std::string_view rest,
                            const Tail& tail) {
    size_t colon = find_outside_text(rest, ':');
    USER_CHECK(names.size() == 1 && colon != std::string_view::npos, op.name(),
               " is written %name = ", op.name(), " ",
               to_string(op.parsed().attrs.at(0).default_value), " : type");
    std::string_view name = value_name(names[0]);
    check_new(graph, name);
    NodeOptions options{.name = std::string(name), .path = tail.path, .phase = tail.phase};
    std::string_view literal = trim(rest.substr(0, colon));
    const size_t open = find_outside_text(literal, '[');
    if (op.parsed().attrs.size() > 1 && open != std::string_view::npos) {
      USER_CHECK(literal.ends_with(']'), in_quotes(literal.substr(open)),
                 " is not a list of dims such as [batch, sequence]");
      for (std::string_view dim :
           split_top_level(literal.substr(open + 1, literal.size() - open - 2), ',')) {
        options.dims.emplace_back(dim);
      }
      literal = trim(literal.substr(0, open));
    }
    Attr source = parse_attr(literal, op.parsed().attrs.at(0).default_value);
    TensorType type = parse_type(rest.substr(colon + 1));
    USER_CHECK(options.dims.empty() || options.dims.size() == type.shape.size(),
               options.dims.size(), " dims are named, found a type with ", type.shape.size());
    return graph.insert_source(nullptr, op, std::move(source), std::move(type), options);
  }

  Node* parse_call(Graph& graph, const OpDef& op, const std::vector<std::string_view>& names,
                   std::string_view rest, const Tail& tail) {
    size_t close = closing(rest);
    std::string_view inside = rest.substr(1, close - 1);
    size_t semicolon = find_outside_text(inside, ';');
    std::vector<Value*> operands;
    for (std::string_view item : split_top_level(inside.substr(0, semicolon), ',')) {
      std::string_view name = value_name(item);
      Value* value = graph.find_value(name);
      USER_CHECK(value != nullptr, "%", shortened(name), " is not defined");
      operands.push_back(value);
    }
    check_operands(op, operands.size());
    Attrs attrs = parse_call_attrs(
        op, semicolon == std::string_view::npos ? "" : inside.substr(semicolon + 1));
    NodeOptions options{.path = tail.path, .phase = tail.phase};
    for (std::string_view name : names) {
      check_new(graph, value_name(name));
      options.result_names.emplace_back(value_name(name));
    }
    const size_t results = result_count(op, operands, attrs);
    USER_CHECK(names.size() == results, op.name(), " gives ", results, " results, found ",
               names.size(), " names");
    Node* node = graph.insert(nullptr, op, std::move(operands), std::move(attrs), options);
    check_results(*node, names, trim(rest.substr(close + 1)));
    return node;
  }

  static size_t result_count(const OpDef& op, const std::vector<Value*>& operands,
                             const Attrs& attrs) {
    if (!op.parsed().has_variadic_results()) return op.parsed().results.size();
    Call call{.op = &op, .operands = {}, .results = {}, .attrs = attrs};
    for (const Value* operand : operands) call.operands.push_back(operand->type);
    return op.infer(call).size();
  }

  static size_t closing(std::string_view rest) {
    USER_CHECK(!rest.empty() && rest[0] == '(', "expected operands in parentheses, found ",
               in_quotes(rest));
    size_t close = find_outside_text(rest, ')');
    USER_CHECK(close != std::string_view::npos, "missing closing parenthesis");
    return close;
  }

  static void check_operands(const OpDef& op, size_t found) {
    size_t least = 0;
    size_t most = 0;
    for (const auto& spec : op.parsed().operands) {
      least += spec.kind == OperandKind::Required ? 1 : 0;
      most = spec.kind == OperandKind::Variadic ? SIZE_MAX / 2 : most + 1;
    }
    USER_CHECK(found >= least && found <= most, op.name(), " takes ", op.signature, ", found ",
               found, " operands");
  }

  // The text gives the names and types of all results; the types must match the inferred ones.
  void check_results(Node& node, const std::vector<std::string_view>& names,
                     std::string_view types) {
    USER_CHECK(!types.empty() && types[0] == ':', "expected result types after \":\", found ",
               in_quotes(types));
    std::vector<std::string_view> items = split_top_level(types.substr(1), ',');
    USER_CHECK(items.size() == node.results.size(), node.op->name(), " gives ", node.results.size(),
               " results, found ", items.size(), " types");
    for (size_t i = 0; i < names.size(); ++i) {
      TensorType type = parse_type(items[i]);
      TensorType& inferred = node.results[i]->type;
      USER_CHECK(is_inferred(*node.op, type, inferred), names[i], " is ", to_string(type),
                 " in the text, but ", node.op->name(), " gives ", to_string(inferred));
      inferred.placement = type.placement;
    }
  }

  static void parse_return(Graph& graph, std::string_view text) {
    for (std::string_view item : split_top_level(trim(text), ',')) {
      size_t equals = item.find('=');
      USER_CHECK(equals != std::string_view::npos, "output ", in_quotes(item),
                 " is not name=%value");
      Value* value = graph.find_value(value_name(item.substr(equals + 1)));
      USER_CHECK(value != nullptr, shortened(item.substr(equals + 1)), " is not defined");
      const std::string_view name = trim(item.substr(0, equals));
      OutputKey key = parse_output_key(name);
      USER_CHECK(graph.find_output(key) == nullptr, "output ", in_quotes(name),
                 " is returned twice");
      graph.add_output(std::move(key), value);
    }
  }

  std::string file_;
  std::vector<std::string> lines_;
  size_t line_ = 0;
};

}  // namespace

std::string print_node(const Node& node) {
  std::vector<std::string> names;
  std::vector<std::string> types;
  for (const auto& value : node.results) {
    names.push_back("%" + value->name);
    types.push_back(to_string(value->type));
  }
  std::string text = cat(join(names, ", "), " = ", node.op->name());
  if (node.op->traits.source) {
    text += " " + to_string(node.attrs.at(0));
    if (const std::vector<std::string>& dims = dim_names(node); !dims.empty()) {
      text += cat(" [", join(dims, ", "), "]");
    }
  } else {
    std::vector<std::string> operands;
    for (const Value* operand : node.operands) operands.push_back("%" + operand->name);
    text += cat("(", join(operands, ", "), print_call_attrs(*node.op, node.attrs), ")");
  }
  text += " : " + join(types, ", ");
  if (!node.path.empty() || node.phase != Phase::Forward || node.recomputed) {
    text += "  #";
    if (!node.path.empty()) text += " " + node.path;
    text += cat(" ", phase_name(node.phase), node.recomputed ? " recomputed" : "");
  }
  return text;
}

std::string print_graph(const Graph& graph) {
  std::string text = "graph " + graph.name();
  if (!graph.mesh().axes.empty()) text += "(mesh " + to_string(graph.mesh()) + ")";
  text += " {\n";
  for (const auto& node : graph.order()) text += "  " + print_node(*node) + "\n";
  std::vector<std::string> outputs;
  for (const auto& output : graph.outputs())
    outputs.push_back(output.name() + "=%" + output.value->name);
  return text + "  return" + (outputs.empty() ? "" : " ") + join(outputs, ", ") + "\n}\n";
}

Graph parse_graph(std::string_view text, const std::string& file) {
  return Parser(text, file).parse();
}

}  // namespace weft
