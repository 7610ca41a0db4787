// The text form: print, parse, canonical text and hash.
#include "ir/text.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "ir/op.h"

namespace aicf::ir {
namespace {

std::string message(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& e) {
    return e.hint().empty() ? e.what() : std::string(e.what()) + " (" + e.hint() + ")";
  }
  return "accepted";
}

ValueId emit1(Graph& graph, const char* op, std::vector<ValueId> inputs, Attrs attrs = {}) {
  return graph.op(graph.add_op(*find_op(op), std::move(inputs), std::move(attrs))).outputs[0];
}

// Every statement there is, as print() writes it.
constexpr const char* kEverything = R"ir(graph {
  input %x : f32[4]
  param %fc1.weight : f32[4] {group="decay", init="uniform(-0x1p-3,0x1p-3)", trainable=true}
  state %optimizer.m/fc1.weight : f32[4] {init="zeros"}
  %3 = mul(%x, %fc1.weight) : f32[4]
  state %fc1.weight.c : bf16[4]
  constant %c0 : f32[2] = [0x1p+0, -0x1.8p-3]
  constant %limit : i32[] = -7
  constant %c1 : bool[] = true
  %low, %high = split(%3) {axis=0, sizes=[2,2]} : f32[2], f32[2]
  %h#10 = add(%low, %c0) : f32[2]
  %h#11 = neg(%h#10) : f32[2]
  %next = concat(%h#11, %high) {axis=0} : f32[4]
  %13 = cast(%fc1.weight) {to=bf16} : bf16[4]
  derive %fc1.weight.c := %13
  update %fc1.weight := %next when %c1
  update %optimizer.m/fc1.weight := %3
  output "loss" = %h#11
}
)ir";

TEST(Text, PrintsWhatItParsed) { EXPECT_EQ(print(parse(kEverything)), kEverything); }

TEST(Text, PrintsABuiltGraph) {
  Graph graph;
  const ValueId x = graph.add_external(Role::input, "x", {f32, {2, 3}});
  const ValueId w = graph.add_external(Role::param, "w", {f32, {3}}, {{"init", std::string("ones")}});
  const ValueId sum = emit1(graph, "add", {x, w});
  graph.set_label(sum, "sum");
  const ValueId out = emit1(graph, "neg", {sum});
  graph.add_output("y", out);
  graph.add_update(w, graph.add_constant(Tensor({f32, {3}})));
  EXPECT_EQ(print(graph), R"(graph {
  input %x : f32[2,3]
  param %w : f32[3] {init="ones"}
  %sum = add(%x, %w) : f32[2,3]
  %3 = neg(%sum) : f32[2,3]
  constant %c0 : f32[3] = [0x0p+0, 0x0p+0, 0x0p+0]
  update %w := %c0
  output "y" = %3
}
)");
}

TEST(Text, ParsingKeepsIds) {
  const Graph graph = parse(kEverything);
  const Graph again = parse(print(graph));
  ASSERT_EQ(again.num_values(), graph.num_values());
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    EXPECT_EQ(again.value(v).name, graph.value(v).name);
    EXPECT_EQ(again.value(v).role, graph.value(v).role);
    EXPECT_EQ(again.value(v).producer, graph.value(v).producer);
  }
}

TEST(Text, EmptyGraph) {
  EXPECT_EQ(print(Graph()), "graph {\n}\n");
  EXPECT_EQ(print(parse("graph {\n}")), "graph {\n}\n");
}

TEST(Text, BlankLinesCommentsAndSpacesDoNotMatter) {
  EXPECT_EQ(
      print(parse("# a\n\n graph{ # b\n\n\tinput%x:f32[ 4 ]# c\r\n  %y=neg( %x ):f32[4]\n output\"y\"=%y\n\n}\n#")),
      "graph {\n  input %x : f32[4]\n  %y = neg(%x) : f32[4]\n  output \"y\" = %y\n}\n");
}

// --- names --------------------------------------------------------------------------------------------------

TEST(Names, OddOnesAreQuoted) {
  Graph graph;
  for (const char* key : {"a b", "7", "c0", "c", "cat", "a#1", "say \"hi\"\\\n", "한", "x/y-z._1", "#"}) {
    graph.add_external(Role::input, key, {f32, {}});
  }
  const std::string text = print(graph);
  EXPECT_EQ(text, R"ir(graph {
  input %"a b" : f32[]
  input %"7" : f32[]
  input %"c0" : f32[]
  input %c : f32[]
  input %cat : f32[]
  input %"a#1" : f32[]
  input %"say \"hi\"\\\n" : f32[]
  input %"한" : f32[]
  input %x/y-z._1 : f32[]
  input %"#" : f32[]
}
)ir");
  const Graph again = parse(text);
  for (ValueId v = 0; v < graph.num_values(); ++v) EXPECT_EQ(again.value(v).name, graph.value(v).name);
  EXPECT_EQ(print(again), text);
}

TEST(Names, LabelsThatClashGetTheirId) {
  Graph graph;
  const ValueId x = graph.add_external(Role::input, "x", {f32, {}});
  const char* labels[] = {"x", "twice", "twice", "2", "c0", "once", "odd one", "odd one", ""};
  ValueId last = x;
  for (const char* label : labels) {
    last = emit1(graph, "neg", {last});
    graph.set_label(last, label);
  }
  const std::string text = print(graph);
  EXPECT_EQ(text, R"(graph {
  input %x : f32[]
  %x#1 = neg(%x) : f32[]
  %twice#2 = neg(%x#1) : f32[]
  %twice#3 = neg(%twice#2) : f32[]
  %"2" = neg(%twice#3) : f32[]
  %"c0" = neg(%"2") : f32[]
  %once = neg(%"c0") : f32[]
  %"odd one"#7 = neg(%once) : f32[]
  %"odd one"#8 = neg(%"odd one"#7) : f32[]
  %9 = neg(%"odd one"#8) : f32[]
}
)");
  const Graph again = parse(text);
  for (size_t i = 0; i < std::size(labels); ++i) EXPECT_EQ(again.value(static_cast<ValueId>(i) + 1).name, labels[i]);
  EXPECT_EQ(print(again), text);
}

TEST(Names, NumbersInTheTextNeedNotBeIds) {
  EXPECT_EQ(print(parse("graph {\n input %x : f32[]\n %70 = neg(%x) : f32[]\n %h#5 = neg(%70) : f32[]\n}")),
            "graph {\n  input %x : f32[]\n  %1 = neg(%x) : f32[]\n  %h = neg(%1) : f32[]\n}\n");
}

// --- constants ----------------------------------------------------------------------------------------------

TEST(Constants, NamedAndAnonymousStaySo) {
  const Graph graph =
      parse("graph {\n constant %c0 : i32[] = 1\n constant %one : i32[] = 1\n constant %c7 : i32[] = 2\n}");
  EXPECT_EQ(graph.value(0).name, "");
  EXPECT_EQ(graph.value(1).name, "one");
  EXPECT_EQ(print(graph),
            "graph {\n  constant %c0 : i32[] = 1\n  constant %one : i32[] = 1\n  constant %c1 : i32[] = 2\n}\n");
}

template <class T>
Tensor of_bits(DType dtype, const std::vector<T>& bits) {
  Tensor tensor({dtype, {static_cast<int64_t>(bits.size())}});
  std::memcpy(tensor.data(), bits.data(), tensor.bytes());
  return tensor;
}

TEST(Constants, EveryBitSurvives) {
  const Tensor tensors[] = {
      of_bits<uint64_t>(f64, {0, 1, 1ull << 63, 0x3fb999999999999a, 0x7ff0000000000000, 0xfff0000000000000,
                              0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001, 0x7fefffffffffffff}),
      of_bits<uint32_t>(f32, {0, 1, 0x80000000, 0x807fffff, 0x3dcccccd, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000,
                              0x7fc00001, 0x7f7fffff}),
      of_bits<uint16_t>(bf16, {0, 1, 0x8000, 0x3f81, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7fc1, 0x7f7f}),
      of_bits<uint16_t>(f16, {0, 1, 0x8000, 0x3c01, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7e01, 0x7bff, 0x03ff}),
      Tensor::of<int64_t>({3}, {std::numeric_limits<int64_t>::min(), -1, std::numeric_limits<int64_t>::max()}),
      Tensor::of<int32_t>({3}, {std::numeric_limits<int32_t>::min(), 0, std::numeric_limits<int32_t>::max()}),
      of_bits<uint8_t>(u8, {0, 1, 255}),
      of_bits<uint8_t>(boolean, {0, 1}),
      Tensor({f32, {2, 0, 3}}),
      Tensor({i64, {1, 1}}),
  };
  Graph graph;
  for (const Tensor& tensor : tensors) graph.add_constant(tensor);
  const std::string text = print(graph);
  const Graph again = parse(text);
  ASSERT_EQ(again.num_values(), static_cast<int>(std::size(tensors)));
  for (size_t i = 0; i < std::size(tensors); ++i) {
    EXPECT_TRUE(*again.value(static_cast<ValueId>(i)).data == tensors[i]) << to_string(tensors[i].type()) << "\n"
                                                                          << text;
  }
  EXPECT_EQ(print(again), text);
}

TEST(Constants, FloatsMayBeWrittenInDecimal) {
  const Graph graph = parse("graph {\n constant %a : f32[4] = [1, 0.1, -2.5e-3, 0x1.8p1]\n}");
  EXPECT_TRUE(*graph.value(0).data == Tensor::of<float>({4}, {1.0f, 0.1f, -2.5e-3f, 3.0f}));
}

// An attribute is an f64.
TEST(Constants, EveryBitOfAnAttributeSurvives) {
  const char* text =
      "graph {\n  input %x : f32[] {a=-0x0p+0, b=0x1.999999999999ap-4, c=nan, d=nan(0xfff8000000000001), e=-inf, "
      "f=0x0.0000000000001p-1022, g=-9223372036854775808}\n}\n";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(Constants, RefusesWhatIsNoElement) {
  const auto constant = [](const std::string& rest) { return message("graph {\n constant %a : " + rest + "\n}"); };
  EXPECT_EQ(constant("u8[] = 256"), "line 2, column 23: expected an element of u8, got 256");
  EXPECT_EQ(constant("i32[] = 2147483648"), "line 2, column 24: expected an element of i32, got 2147483648");
  EXPECT_EQ(constant("i32[] = 1.5"), "line 2, column 24: expected an element of i32, got 1.5");
  EXPECT_EQ(constant("i32[] = nan"), "line 2, column 24: expected an element of i32, got nan");
  EXPECT_EQ(constant("bool[] = 1"), "line 2, column 25: expected an element of bool, got 1");
  EXPECT_EQ(constant("f16[] = 1e6"), "line 2, column 24: expected an element of f16, got 1e6");
  EXPECT_EQ(constant("f32[] = 0x1p+0x"), "line 2, column 24: expected an element of f32, got 0x1p+0x");
  EXPECT_EQ(constant("f32[] = --1"), "line 2, column 24: expected an element of f32, got -");
  EXPECT_EQ(constant("f32[] = nan(0x7f800000)"), "line 2, column 24: expected an element of f32, got nan");
  EXPECT_EQ(constant("f16[] = nan(0x17e01)"), "line 2, column 24: expected an element of f16, got nan");
  EXPECT_EQ(constant("f32[2] = [1]"), "line 2, column 25: expected 2 elements, got 1");
  EXPECT_EQ(constant("f32[2] = [1, 2, 3]"), "line 2, column 32: expected 2 elements and ], got 3");
  EXPECT_EQ(constant("f32[2] = 1"), "line 2, column 25: expected [, got 1");
  EXPECT_EQ(constant("f32[1000000000] = [1]"), "line 2, column 34: expected 1000000000 elements, got [");
}

// --- bodies -------------------------------------------------------------------------------------------------

constexpr const char* kBody = R"(graph {
  input %x : f32[4]
  %1 = neg(%x) : f32[4] body {
    input %a : f32[4]
    constant %c0 : f32[] = 0x1p+0
    %2 = add(%a, %c0) : f32[4]
    input %3 : f32[4]
    input %"5" : f32[4]
    %x = neg(%2) : f32[4] body {
      input %0 : f32[4]
      yield "dx" = %0, %0, "again" = %0
    }
    yield %x, %3
  }
  output "y" = %1
}
)";

TEST(Bodies, RoundTrip) {
  const Graph graph = parse(kBody);
  EXPECT_EQ(print(graph), kBody);
  const Graph& body = *graph.op(0).region;
  EXPECT_EQ(body.outputs().size(), 2u);
  EXPECT_EQ(body.outputs()[1].name, "1");
  EXPECT_EQ(body.value(0).name, "a");
  EXPECT_EQ(body.value(3).name, "3");
}

// The op may read them: with_gradient does.
TEST(Bodies, NamesOfResultsAreNoLabels) {
  const Graph graph = parse(kBody);
  std::string text = kBody;
  text.replace(text.find("again"), 5, "other");
  EXPECT_EQ(parse(text).op(0).region->op(1).region->outputs()[2].name, "other");
  EXPECT_NE(canonical_text(parse(text)), canonical_text(graph));
}

TEST(Bodies, SeeNoValueOutside) {
  EXPECT_EQ(message("graph {\n input %x : f32[]\n %y = neg(%x) : f32[] body {\n yield %x\n }\n}"),
            "line 4, column 8: expected a value defined above, got %x");
}

TEST(Bodies, NestingIsBounded) {
  const auto nested = [](int depth) {
    std::string text = "graph {\n input %x : f32[]\n";
    for (int i = 0; i < depth; ++i) text += " %y = neg(%x) : f32[] body {\n input %x : f32[]\n";
    for (int i = 0; i < depth; ++i) text += " yield %x\n }\n";
    return text + "}\n";
  };
  EXPECT_EQ(message(nested(kMaxBodyDepth)), "accepted");
  EXPECT_EQ(message(nested(kMaxBodyDepth + 1)), "line 35, column 23: expected at most 16 bodies in one another");
  EXPECT_NE(message(nested(100000)), "accepted");
}

// --- canonical text and hash --------------------------------------------------------------------------------

TEST(Canonical, IgnoresLabelsAndWhereExternalsStand) {
  const Graph a = parse(kEverything);
  Graph b = parse(kEverything);
  b.set_label(3, "product");
  b.set_label(11, "");
  EXPECT_NE(print(a), print(b));
  EXPECT_EQ(canonical_text(a), canonical_text(b));
  EXPECT_EQ(structural_hash(a), structural_hash(b));
  EXPECT_EQ(canonical_text(parse("graph {\n input %x : f32[]\n %h = neg(%x) : f32[]\n input %y : f32[]\n"
                                 " %k = add(%h, %y) : f32[]\n}")),
            "graph {\n  input %x : f32[]\n  input %y : f32[]\n  %0 = neg(%x) : f32[]\n  %1 = add(%0, %y) : f32[]\n}\n");
}

TEST(Canonical, IgnoresNamesInBodies) {
  const auto body = [](const char* in, const char* out) {
    return canonical_text(parse(std::string("graph {\n input %x : f32[]\n %y = neg(%x) : f32[] body {\n input %") + in +
                                " : f32[]\n %" + out + " = neg(%" + in + ") : f32[]\n yield %" + out + "\n }\n}"));
  };
  EXPECT_EQ(body("a", "b"), body("p", "q"));
}

TEST(Canonical, IsItselfParsed) {
  for (const char* text : {kEverything, kBody}) {
    const std::string canonical = canonical_text(parse(text));
    EXPECT_EQ(canonical_text(parse(canonical)), canonical);
  }
}

// Each change is a different program.
TEST(Canonical, DiffersWithTheProgram) {
  const std::string base = kEverything;
  const uint64_t hash = structural_hash(parse(base));
  const std::pair<const char*, const char*> changes[] = {
      {"-0x1.8p-3", "-0x1.8p-4"},
      {"sizes=[2,2]} : f32[2], f32[2]", "sizes=[2,2]} : f32[2], f32[2]\n"},
      {"mul(%x, %fc1.weight)", "mul(%fc1.weight, %x)"},
      {" when %c1", ""},
      {"\"loss\"", "\"lost\""},
      {"group=\"decay\"", "group=\"none\""},
      {"update %optimizer.m/fc1.weight := %3", "update %optimizer.m/fc1.weight := %next"},
      {"derive %fc1.weight.c := %13\n", "\n"},
      {"input %x", "state %x"},
      {"neg(", "abs("},
  };
  for (const auto& [from, to] : changes) {
    std::string text = base;
    text.replace(text.find(from), std::strlen(from), to);
    const bool same_program = std::string_view(to).find(from) == 0;  // white space only
    EXPECT_EQ(structural_hash(parse(text)) == hash, same_program) << from;
  }
}

TEST(Canonical, HashIsTheSameInEveryProcess) {
  // FNV-1a of the text "graph {\n}\n", computed by the published algorithm.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : std::string("graph {\n}\n")) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  EXPECT_EQ(structural_hash(Graph()), hash);
}

// --- untrusted text -----------------------------------------------------------------------------------------

// Cut anywhere, or with any byte replaced: parsed or refused with a place, never anything else.
TEST(Untrusted, CutAndChangedTexts) {
  for (const std::string text : {kEverything, kBody}) {
    const auto try_one = [](const std::string& changed) {
      try {
        const std::string printed = print(parse(changed));
        EXPECT_EQ(print(parse(printed)), printed);
      } catch (const Error& e) {
        EXPECT_EQ(std::string(e.what()).rfind("line ", 0), 0u) << e.what();
      }
    };
    for (size_t i = 0; i < text.size(); ++i) {
      try_one(text.substr(0, i));
      try_one(text.substr(i));
      for (const char c : {'\0', '\n', '"', '%', '{', '9', 'z', '\xff'}) {
        std::string changed = text;
        changed[i] = c;
        try_one(changed);
      }
    }
  }
}

TEST(Untrusted, TypesAreBounded) {
  const auto input = [](const std::string& type) { return message("graph {\n input %x : " + type + "\n}"); };
  EXPECT_EQ(input("f32[1,1,1,1,1,1,1,1]"), "accepted");
  EXPECT_EQ(input("f32[1,1,1,1,1,1,1,1,1]"), "line 2, column 13: expected rank at most 8");
  EXPECT_EQ(input("f32[4611686018427387904]"),
            "line 2, column 13: expected at most 2^62 bytes, got f32[4611686018427387904]");
  EXPECT_EQ(input("u8[4611686018427387904]"), "accepted");
  EXPECT_EQ(input("f32[99999999999999999999]"),
            "line 2, column 17: expected a 64-bit integer, got 99999999999999999999");
  EXPECT_EQ(input("f32[-1]"), "line 2, column 13: shape with the negative extent -1");
}

// --- the documentation --------------------------------------------------------------------------------------

// Every fenced block of docs/ir.md that starts with "graph {" is printed as it stands there.
TEST(Documentation, ExamplesParse) {
  std::ifstream file(AICF_SOURCE_DIR "/docs/ir.md");
  ASSERT_TRUE(file);
  int examples = 0;
  std::string line, block;
  bool fenced = false;
  while (std::getline(file, line)) {
    if (line.rfind("```", 0) == 0) {
      if (fenced && block.rfind("graph {", 0) == 0) {
        ++examples;
        EXPECT_EQ(print(parse(block)), block);
      }
      fenced = !fenced;
      block.clear();
    } else if (fenced) {
      block += line + "\n";
    }
  }
  EXPECT_GE(examples, 3);
}

}  // namespace
}  // namespace aicf::ir
