// Parses, prints and type-checks fused bodies.
#include "graph/fused_body.h"

#include "graph/call_text.h"

namespace weft {
namespace {

FusedArg parse_arg(std::string_view text, const FusedBody& earlier) {
  if (text.starts_with('$')) {
    const auto index = parse_int(text.substr(1));
    USER_CHECK(index && *index >= 0, in_quotes(text), " is not an operand such as $0");
    return {true, static_cast<size_t>(*index)};
  }
  for (size_t i = 0; i < earlier.size(); ++i) {
    if (earlier[i].name == text) return {false, i};
  }
  throw UserError(ExitCode::Config,
                  cat(in_quotes(text), " is not the name of an earlier statement"));
}

FusedStatement parse_statement(std::string_view text, const FusedBody& earlier) {
  const size_t colon = text.find(':');
  const size_t equals = text.find('=');
  const size_t open = text.find('(');
  USER_CHECK(colon < equals && equals < open && open < text.size() && text.ends_with(')'),
             in_quotes(text), " is not name:dtype = op(args; attrs)");
  FusedStatement statement;
  statement.name = std::string(trim(text.substr(0, colon)));
  statement.dtype = parse_dtype(trim(text.substr(colon + 1, equals - colon - 1)));
  const std::string_view op = trim(text.substr(equals + 1, open - equals - 1));
  statement.op = find_op(op);
  USER_CHECK(statement.op != nullptr && statement.op->traits.elementwise, in_quotes(op),
             " is not an elementwise op");
  const auto parts = split_top_level(text.substr(open + 1, text.size() - open - 2), ';');
  USER_CHECK(parts.size() == 1 || parts.size() == 2, in_quotes(text), " has no arguments");
  for (std::string_view arg : split_top_level(parts[0], ',')) {
    statement.args.push_back(parse_arg(arg, earlier));
  }
  USER_CHECK(statement.args.size() == statement.op->parsed().operands.size(), in_quotes(text),
             " has ", statement.args.size(), " arguments, expected ", statement.op->signature);
  statement.attrs = parse_call_attrs(*statement.op, parts.size() == 2 ? parts[1] : "");
  return statement;
}

}  // namespace

FusedBody parse_fused_body(std::string_view text) {
  FusedBody body;
  try {
    for (std::string_view item : split_top_level(text, ';')) {
      FusedStatement statement = parse_statement(item, body);
      for (const FusedStatement& earlier : body) {
        USER_CHECK(earlier.name != statement.name, in_quotes(statement.name), " is defined twice");
      }
      body.push_back(std::move(statement));
    }
    USER_CHECK(!body.empty(), "the body is empty");
  } catch (const UserError& error) {
    throw UserError(error.code(), cat("fused: ", error.what()));
  }
  return body;
}

std::string print_fused_body(const FusedBody& body) {
  std::vector<std::string> statements;
  for (const FusedStatement& statement : body) {
    std::vector<std::string> args;
    for (const FusedArg& arg : statement.args) {
      args.push_back(arg.is_operand ? cat("$", arg.index) : body.at(arg.index).name);
    }
    statements.push_back(cat(statement.name, ":", dtype_name(statement.dtype), " = ",
                             statement.op->name(), "(", join(args, ", "),
                             print_call_attrs(*statement.op, statement.attrs), ")"));
  }
  return join(statements, "; ");
}

Call fused_call(const FusedStatement& statement, const std::vector<TensorType>& operands,
                const std::vector<TensorType>& earlier) {
  Call call{.op = statement.op, .operands = {}, .results = {}, .attrs = statement.attrs};
  for (const FusedArg& arg : statement.args) {
    const auto& types = arg.is_operand ? operands : earlier;
    USER_CHECK(arg.index < types.size(), "$", arg.index, " is read, but there are only ",
               types.size(), " operands");
    call.operands.push_back(types[arg.index]);
  }
  call.results = statement.op->infer(call);
  return call;
}

std::vector<TensorType> fused_types(const Call& call, const FusedBody& body) {
  std::vector<TensorType> types;
  for (const FusedStatement& statement : body) {
    try {
      types.push_back(fused_call(statement, call.operands, types).results[0]);
    } catch (const UserError& error) {
      call.refuse(cat("statement ", statement.name, ": ", error.what()));
    }
    call.require(types.back().dtype == statement.dtype, statement.name, " is ",
                 dtype_name(statement.dtype), ", but ", statement.op->name(), " gives ",
                 dtype_name(types.back().dtype));
    call.require(types.back().shape == types.front().shape, statement.name, " is ",
                 to_string(types.back()), ", expected the shape ", to_string(types.front().shape));
  }
  return types;
}

double fused_flops(const Call& call, const FusedBody& body) {
  std::vector<TensorType> types;
  double flops = 0;
  for (const FusedStatement& statement : body) {
    const Call inner = fused_call(statement, call.operands, types);
    const double elements = static_cast<double>(inner.results[0].elements());
    if (statement.op->cost != nullptr && elements > 0) {
      flops += statement.op->cost(inner).flops / elements;
    }
    types.push_back(inner.results[0]);
  }
  return flops;
}

}  // namespace weft
