// parallel: ops that do not need each other, run side by side in one launch. It means its ops run one by one.
#include "ops/parallel.h"

#include <algorithm>

#include "ops/defs.h"
#include "ops/region_op.h"
#include "ops/samples.h"
#include "ops/structural.h"

namespace aicf::ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  std::vector<TensorType> types = infer_body(ctx);
  size_t results = 0;
  for (const ir::Op& op : ctx.region->ops()) {
    results += op.outputs.size();
    for (ir::ValueId v : op.inputs) {
      if (!ctx.region->is_external(v)) throw mismatch(ctx, "ops that read operands alone", op.def->name);
    }
  }
  std::vector<ir::ValueId> yielded;
  for (const ir::Output& o : ctx.region->outputs()) {
    if (ctx.region->value(o.value).producer == ir::kNoOp) throw mismatch(ctx, "results of ops", o.name);
    yielded.push_back(o.value);
  }
  std::sort(yielded.begin(), yielded.end());
  if (yielded.size() != results || std::adjacent_find(yielded.begin(), yielded.end()) != yielded.end()) {
    throw mismatch(ctx, "every result of every op once", "others");
  }
  return types;
}

// The index of each value among the body's inputs or outputs; -1: neither.
std::vector<int> operand_numbers(const ir::Graph& body) {
  std::vector<int> numbers(static_cast<size_t>(body.num_values()), -1);
  int next = 0;
  for (ir::ValueId v = 0; v < body.num_values(); ++v) {
    if (body.is_external(v)) numbers[static_cast<size_t>(v)] = next++;
  }
  return numbers;
}

// An op's own rules, where no other op reads that operand.
std::vector<ir::AliasRule> alias_of(const ir::Op& parallel) {
  const ir::Graph& body = *parallel.region;
  const std::vector<int> operands = operand_numbers(body);
  const auto readers = body.readers();
  std::vector<ir::AliasRule> rules;
  for (size_t out = 0; out < body.outputs().size(); ++out) {
    const ir::ValueInfo& result = body.value(body.outputs()[out].value);
    const ir::Op& op = body.op(result.producer);
    for (const ir::AliasRule& rule : ir::alias_rules(op)) {
      const ir::ValueId operand = op.inputs[static_cast<size_t>(rule.in)];
      const std::vector<ir::OpId>& by = readers[static_cast<size_t>(operand)];
      const bool alone = std::all_of(by.begin(), by.end(), [&](ir::OpId id) { return id == result.producer; });
      if (rule.out != result.result || !alone) continue;
      rules.push_back({static_cast<int>(out), operands[static_cast<size_t>(operand)], rule.must});
    }
  }
  return rules;
}

std::vector<ir::Sample> samples() {
  using Values = std::vector<Value>;
  constexpr auto sample = region_sample;
  const auto unused = [](ir::Sample s) {
    s.unused_output = 1;
    return s;
  };
  const auto repeated = [](ir::Sample s) {
    s.same_as = {-1, 0};
    return s;
  };
  return {
      sample("two", floats({{7}, {3, 5}}),
             [](Values v) {
               return Values{neg(v[0]), exp(v[1])};
             }),
      sample("one", floats({{40}}), [](Values v) { return Values{tanh(v[0])}; }),
      sample("a_shared_operand", floats({{40}, {2, 40}}),
             [](Values v) {
               return Values{v[0] + v[1], relu(v[0])};
             }),
      sample("scalars", floats({{}, {}}),
             [](Values v) {
               return Values{-v[0], v[0] * v[1], exp(v[1])};
             }),
      sample("large_and_small", floats({{90, 1000}, {5}}),
             [](Values v) {
               return Values{v[0] * v[0], exp(v[1])};
             }),
      sample("sums_of_several_sizes", floats({{300, 40}, {12, 9}, {5000}}),
             [](Values v) {
               return Values{max(v[0], {0}), max(v[1], {1}), min(v[2])};
             }),
      unused(sample("a_result_that_nobody_reads", floats({{9}, {4}}),
                    [](Values v) {
                      return Values{neg(v[0]), neg(v[1])};
                    })),
      repeated(sample("an_operand_twice", floats({{9}, {9}}),
                      [](Values v) {
                        return Values{neg(v[0]), v[0] * v[1]};
                      })),
      sample("one_empty", floats({{0, 3}, {4}}),
             [](Values v) {
               return Values{neg(v[0]), neg(v[1])};
             }),
  };
}

}  // namespace

std::vector<ParallelMember> parallel_members(const ir::Graph& body) {
  std::vector<int> buffer_of = operand_numbers(body);
  const int operands = 1 + *std::max_element(buffer_of.begin(), buffer_of.end());
  for (size_t i = 0; i < body.outputs().size(); ++i) {
    buffer_of[static_cast<size_t>(body.outputs()[i].value)] = operands + static_cast<int>(i);
  }
  std::vector<ParallelMember> members;
  for (const ir::Op& op : body.ops()) {
    ParallelMember member;
    member.op = &op;
    for (ir::ValueId v : op.inputs) member.in.push_back(body.type(v));
    for (ir::ValueId v : op.outputs) member.out.push_back(body.type(v));
    for (ir::ValueId v : op.inputs) member.buffers.push_back(buffer_of[static_cast<size_t>(v)]);
    for (ir::ValueId v : op.outputs) member.buffers.push_back(buffer_of[static_cast<size_t>(v)]);
    members.push_back(std::move(member));
  }
  return members;
}

const ir::OpDef parallel_def = {
    .name = "parallel",
    .num_inputs = ir::kVariadic,
    .operand_names = {"operands"},
    .infer = infer,
    .grad = ir::not_differentiable,
    .alias_of = alias_of,
    .dtypes = {f32, f64, bf16, f16},
    .samples = samples,
};

}  // namespace aicf::ops
