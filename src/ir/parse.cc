// Text to graph: recursive descent over the tokens of lexer.h. The grammar is in docs/ir.md; the text is untrusted.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "aicf/suggest.h"
#include "ir/lexer.h"
#include "ir/literal.h"
#include "ir/op.h"
#include "ir/text.h"

namespace aicf::ir {
namespace {

constexpr size_t kMaxText = size_t{1} << 30;  // so that counts and ids fit their types

// The graph under construction and the names that its statements may use.
struct Scope {
  struct Definition {
    ValueId value;
    int line;
  };
  Graph graph;
  int depth = 0;  // of bodies
  std::map<ValueName, Definition> names = {};
  bool body() const { return depth > 0; }
};

std::string spelled(const ValueName& name) {
  std::string text = "%" + (name.kind == ValueName::Kind::word ? word_text(name.text) : name.text);
  return name.suffix < 0 ? text : fmt::format("{}#{}", text, name.suffix);
}

// Runs `action`; an Error of the graph's gets the place in the text.
template <class Action>
auto placed(const Token& where, Action action) {
  try {
    return action();
  } catch (const Error& e) {
    fail_at(where, e.what(), e.hint());
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text), size_(text.size()) { advance(); }

  Graph graph() {
    Scope scope;
    if (token_.kind == Token::Kind::newline) advance();
    expect("graph");
    expect("{");
    end_of_line();
    while (!token_.is("}")) statement(scope);
    advance();
    if (token_.kind == Token::Kind::newline) advance();
    if (token_.kind != Token::Kind::end) fail_expected(token_, "the end of the text after the graph");
    for (size_t i = 0; i < derives_.size(); ++i) {
      placed(derives_[i], [&] { check_derivation(scope.graph, scope.graph.derivations()[i]); });
    }
    return std::move(scope.graph);
  }

 private:
  // --- tokens ---
  Token advance() { return std::exchange(token_, lexer_.next()); }

  Token expect(std::string_view text) {
    if (!token_.is(text)) fail_expected(token_, std::string(text));
    return advance();
  }

  Token expect(Token::Kind kind, const char* what) {
    if (token_.kind != kind) fail_expected(token_, what);
    return advance();
  }

  bool accept(std::string_view text) {
    if (!token_.is(text)) return false;
    advance();
    return true;
  }

  void end_of_line() { expect(Token::Kind::newline, "the end of the line"); }

  // item { "," item }, up to `close`; possibly none.
  template <class Item>
  void list(std::string_view close, Item item) {
    if (accept(close)) return;
    do item();
    while (accept(","));
    expect(close);
  }

  // --- names ---
  void define(Scope& scope, const Token& token, ValueId value) {
    const auto [it, fresh] = scope.names.emplace(token.name, Scope::Definition{value, token.line});
    if (!fresh) {
      fail_at(token,
              fmt::format("expected a new name, got {}, which line {} defines", describe(token), it->second.line));
    }
  }

  ValueId use(const Scope& scope, const Token& token) {
    const auto it = scope.names.find(token.name);
    if (it != scope.names.end()) return it->second.value;
    std::vector<std::string> known;
    for (const auto& [name, definition] : scope.names) known.push_back(spelled(name));
    fail_at(token, fmt::format("expected a value defined above, got {}", describe(token)),
            base::did_you_mean(spelled(token.name), known));
  }

  ValueId operand(const Scope& scope) { return use(scope, expect(Token::Kind::value, "a value (%name)")); }

  // --- statements ---
  void statement(Scope& scope) {
    const Token head = token_;
    if (head.kind == Token::Kind::value) {
      op(scope);
    } else if (head.is("input") || head.is("param") || head.is("state")) {
      external(scope);
    } else if (head.is("constant")) {
      constant(scope);
    } else if (head.is("update") || head.is("derive") || head.is("output")) {
      if (scope.body()) fail_expected(head, "an input, a constant, an op or yield in a body");
      effect(scope);
    } else {
      static const std::vector<std::string> kHeads = {"input",  "param",  "state", "constant",
                                                      "update", "derive", "output"};
      fail_expected(head, scope.body() ? "an input, a constant, an op or yield" : "a statement or }",
                    head.kind == Token::Kind::word ? base::did_you_mean(head.source, kHeads) : "");
    }
    end_of_line();
  }

  void external(Scope& scope) {
    const Token head = advance();
    if (scope.body() && !head.is("input")) fail_expected(head, "an input, a constant, an op or yield in a body");
    const Role role = head.is("input") ? Role::input : head.is("param") ? Role::param : Role::state;
    const Token name = expect(Token::Kind::value, "a name (%name)");
    const bool number = scope.body() && name.name.kind == ValueName::Kind::number;
    if ((name.name.kind != ValueName::Kind::word && !number) || name.name.suffix >= 0) {
      fail_expected(name, "a name", "quote it: %\"…\"");
    }
    const TensorType type = typed();
    Attrs given = attrs(nullptr);
    define(scope, name,
           placed(name, [&] { return scope.graph.add_external(role, name.name.text, type, std::move(given)); }));
  }

  void constant(Scope& scope) {
    advance();
    const Token name = expect(Token::Kind::value, "a name (%name)");
    if (name.name.kind == ValueName::Kind::number || name.name.suffix >= 0) {
      fail_expected(name, "a name, or %c and a number for a constant without one", "quote it: %\"…\"");
    }
    const TensorType type = typed();
    expect("=");
    Tensor data = elements(type);
    const bool anonymous = name.name.kind == ValueName::Kind::constant;
    define(scope, name, placed(name, [&] {
             return scope.graph.add_constant(std::move(data), anonymous ? std::string() : name.name.text);
           }));
  }

  void effect(Scope& scope) {
    const Token head = advance();
    if (head.is("output")) {
      const Token name = expect(Token::Kind::string, "the output's name in quotes");
      expect("=");
      const ValueId value = operand(scope);
      placed(name, [&] { scope.graph.add_output(name.string, value); });
      return;
    }
    const Token target = token_;
    const ValueId to = operand(scope);
    expect(":=");
    const ValueId from = operand(scope);
    if (head.is("derive")) {
      placed(target, [&] { scope.graph.add_derivation(to, from); });
      derives_.push_back(target);
      return;
    }
    const ValueId guard = accept("when") ? operand(scope) : kNoValue;
    placed(target, [&] { scope.graph.add_update(to, from, guard); });
  }

  void op(Scope& scope) {
    std::vector<Token> results;
    do results.push_back(expect(Token::Kind::value, "a value (%name)"));
    while (accept(","));
    expect("=");
    const Token name = expect(Token::Kind::word, "the name of an op");
    const OpDef& def = record(name);
    expect("(");
    std::vector<ValueId> inputs;
    list(")", [&] { inputs.push_back(operand(scope)); });
    Attrs given = attrs(&def);
    placed(name, [&] { check_attrs(def, given, fmt::format("op {}", def.name)); });
    expect(":");
    std::vector<std::pair<Token, TensorType>> types;
    do {
      const Token where = token_;
      types.emplace_back(where, type());
    } while (accept(","));
    auto region = token_.is("body") ? body(scope) : nullptr;
    const OpId id =
        placed(name, [&] { return scope.graph.add_op(def, std::move(inputs), std::move(given), std::move(region)); });
    define_results(scope, id, name, results, types);
  }

  void define_results(Scope& scope, OpId id, const Token& op, const std::vector<Token>& results,
                      const std::vector<std::pair<Token, TensorType>>& types) {
    const std::vector<ValueId> outputs = scope.graph.op(id).outputs;
    if (results.size() != outputs.size()) {
      fail_at(op, fmt::format("expected {} result(s) of {}, got {}", outputs.size(), op.source, results.size()));
    }
    if (types.size() != outputs.size()) {
      fail_at(types[0].first, fmt::format("expected {} type(s), got {}", outputs.size(), types.size()));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const TensorType& inferred = scope.graph.type(outputs[i]);
      if (inferred != types[i].second) {
        fail_at(types[i].first, fmt::format("expected {}, which {} gives, got {}", to_string(inferred), op.source,
                                            to_string(types[i].second)));
      }
      const ValueName& name = results[i].name;
      if (name.kind == ValueName::Kind::constant || (name.kind == ValueName::Kind::number && name.suffix >= 0)) {
        fail_expected(results[i], "the name of a result", "%c and a number is a constant; quote it: %\"…\"");
      }
      define(scope, results[i], outputs[i]);
      if (name.kind == ValueName::Kind::word) scope.graph.set_label(outputs[i], name.text);
    }
  }

  const OpDef& record(const Token& name) {
    if (const OpDef* def = find_op(name.source)) return *def;
    std::vector<std::string> known;
    for (const OpDef* def : op_table()) known.push_back(def->name);
    fail_expected(name, "the name of an op", base::did_you_mean(name.source, known));
  }

  std::shared_ptr<const Graph> body(const Scope& outer) {
    const Token head = advance();
    Scope scope;
    scope.depth = outer.depth + 1;
    if (scope.depth > kMaxBodyDepth)
      fail_at(head, fmt::format("expected at most {} bodies in one another", kMaxBodyDepth));
    expect("{");
    end_of_line();
    while (!token_.is("yield")) statement(scope);
    advance();
    do {
      const Token first = token_;
      std::string name = std::to_string(scope.graph.outputs().size());
      if (first.kind == Token::Kind::string) {
        name = advance().string;
        expect("=");
      }
      const ValueId value = operand(scope);
      placed(first, [&] { scope.graph.add_output(name, value); });
    } while (accept(","));
    end_of_line();
    expect("}");
    return std::make_shared<const Graph>(std::move(scope.graph));
  }

  // --- types, attributes, elements ---
  TensorType typed() {
    expect(":");
    return type();
  }

  TensorType type() {
    const Token word = expect(Token::Kind::word, "a type such as f32[64,128]");
    TensorType type;
    if (!parse_dtype(word.source, type.dtype)) fail_expected(word, "a type such as f32[64,128]");
    expect("[");
    std::vector<int64_t> dims;
    list("]", [&] {
      dims.push_back(integer());
      if (dims.size() > static_cast<size_t>(kMaxRank)) fail_at(word, fmt::format("expected rank at most {}", kMaxRank));
    });
    type.shape = placed(word, [&] { return Shape(std::span<const int64_t>(dims)); });
    constexpr int64_t kMaxBytes = int64_t{1} << 62;
    if (type.shape.elements() > kMaxBytes / static_cast<int64_t>(size_of(type.dtype))) {
      fail_at(word, "expected at most 2^62 bytes, got " + to_string(type));
    }
    return type;
  }

  int64_t integer() {
    const Token token = expect(Token::Kind::number, "an integer");
    int64_t value = 0;
    if (!parse_integer(token.source, value)) fail_expected(token, "a 64-bit integer");
    return value;
  }

  // The record says which integers are floats written without a point.
  Attrs attrs(const OpDef* def) {
    Attrs attrs;
    if (!accept("{")) return attrs;
    list("}", [&] {
      const Token name = expect(Token::Kind::word, "the name of an attribute");
      if (attrs.has(name.source)) fail_expected(name, "each attribute once");
      expect("=");
      AttrValue value = attr_value();
      const auto* whole = std::get_if<int64_t>(&value);
      for (const AttrSpec& spec : def != nullptr ? def->attrs : std::vector<AttrSpec>()) {
        const bool real = spec.name == name.source && spec.kind == AttrSpec::Kind::real;
        if (real && whole != nullptr) value = static_cast<double>(*whole);
      }
      attrs.set(name.source, std::move(value));
    });
    return attrs;
  }

  AttrValue attr_value() {
    constexpr const char* kWhat = "true, false, a number, a string, a list of integers or a dtype";
    if (accept("[")) {
      std::vector<int64_t> values;
      list("]", [&] { values.push_back(integer()); });
      return values;
    }
    const Token token = advance();
    if (token.kind == Token::Kind::string) return token.string;
    if (token.is("true") || token.is("false")) return token.is("true");
    int64_t whole = 0;
    double real = 0;
    DType dtype{};
    if (token.kind == Token::Kind::word && parse_dtype(token.source, dtype)) return dtype;
    if (token.kind == Token::Kind::number && parse_integer(token.source, whole)) return whole;
    const bool number = token.kind == Token::Kind::number || token.kind == Token::Kind::word;
    if (number && read_element(token, DType::f64, &real, 0)) return real;
    fail_expected(token, kWhat);
  }

  Tensor elements(const TensorType& type) {
    const int64_t count = type.shape.elements();
    // An element takes a byte or more, so the text's own size bounds what a small text can make us allocate.
    if (count > static_cast<int64_t>(size_)) fail_expected(token_, fmt::format("{} elements", count));
    Tensor data(type);
    if (type.shape.rank() == 0) {
      element(data, 0);
      return data;
    }
    const Token open = expect("[");
    int64_t given = 0;
    list("]", [&] {
      if (given == count) fail_expected(token_, fmt::format("{} elements and ]", count));
      element(data, given++);
    });
    if (given != count) fail_at(open, fmt::format("expected {} elements, got {}", count, given));
    return data;
  }

  void element(Tensor& data, int64_t i) {
    const Token token = advance();
    const bool literal = token.kind == Token::Kind::number || token.kind == Token::Kind::word;
    if (literal && read_element(token, data.dtype(), data.data(), i)) return;
    fail_expected(token, fmt::format("an element of {}", name_of(data.dtype())));
  }

  // `token` is the literal, or the nan of nan(BITS), whose rest follows.
  bool read_element(const Token& token, DType dtype, void* data, int64_t i) {
    if (!token.is("nan") || !accept("(")) return parse_element(dtype, token.source, data, i);
    const Token bits = advance();
    expect(")");
    return parse_nan_bits(dtype, bits.source, data, i);
  }

  Lexer lexer_;
  size_t size_;
  Token token_;
  std::vector<Token> derives_;  // what they may read is known at the end
};

}  // namespace

Graph parse(std::string_view text) {
  if (text.size() > kMaxText) throw Error("line 1, column 1: expected at most 1 GiB of text");
  Graph graph = Parser(text).graph();
  verify(graph);
  return graph;
}

}  // namespace aicf::ir
