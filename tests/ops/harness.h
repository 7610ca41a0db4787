// What the op tests iterate over: every record × sample × dtype, and how closely results must agree.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "ir/text.h"
#include "ops/interpret.h"
#include "ops/retype.h"

namespace aicf::test {

struct OpCase {
  const ir::OpDef* def = nullptr;
  ir::Sample sample;  // at its dtype
  DType dtype = f32;

  std::string text() const { return std::string(def->name) + "/" + sample.name + "/" + std::string(name_of(dtype)); }
};

// An op that passes make after differentiation: it means its body.
inline bool means_its_body(const ir::OpDef& def) {
  return !def.is(ir::kComposite) && def.samples != nullptr && !def.samples().empty() &&
         def.samples()[0].region != nullptr;
}

inline std::vector<OpCase> cases_of(const ir::OpDef& def) {
  std::vector<OpCase> cases;
  if (def.samples == nullptr) return cases;
  for (const ir::Sample& sample : def.samples()) {
    if (is_typed(sample)) {
      cases.push_back({&def, sample, sample.inputs[0].dtype});
      continue;
    }
    for (DType dtype : def.dtypes) {
      if (auto at = at_dtype(sample, dtype)) cases.push_back({&def, *at, dtype});
    }
  }
  return cases;
}

// A plan grants a rule only for equal types (equal bytes for a view), and when every slot that holds the operand may
// give its storage away.
inline bool can_be_granted(const OpCase& c, const BoundOp& op, const ir::AliasRule& rule) {
  const TensorType &in = op.in[rule.in], &out = op.out[rule.out];
  if (c.def->is(ir::kView) ? in.bytes() != out.bytes() : in != out) return false;
  for (size_t i = 0; i < c.sample.same_as.size(); ++i) {
    const int holder = c.sample.same_as[i] >= 0 ? c.sample.same_as[i] : static_cast<int>(i);
    const int wanted = c.sample.same_as.empty() || c.sample.same_as[rule.in] < 0 ? rule.in : c.sample.same_as[rule.in];
    if (holder != wanted) continue;
    const std::vector<ir::AliasRule> rules = op.alias_rules();
    const bool listed = std::any_of(rules.begin(), rules.end(), [&](const ir::AliasRule& r) {
      return r.out == rule.out && r.in == static_cast<int>(i);
    });
    if (!listed) return false;
  }
  return true;
}

// The cases that a GPU backend has a kernel for: not those of f64, which is for the CPU alone, and what `compute`
// rounds is rounded, as the passes leave it.
inline std::vector<OpCase> gpu_cases_of(const ir::OpDef& def) {
  std::vector<OpCase> cases;
  for (OpCase& c : cases_of(def)) {
    ir::Graph graph = graph_of(def, c.sample).graph;
    passes::compute_casts(graph);
    for (const ir::Op& op : graph.ops()) {
      if (op.def != &def) continue;
      const BoundOp bound = bind(graph, op);
      const auto is_wide = [](const TensorType& t) { return t.dtype == f64; };
      if (std::any_of(bound.in.begin(), bound.in.end(), is_wide)) break;
      if (std::any_of(bound.out.begin(), bound.out.end(), is_wide)) break;
      if (bound.in != c.sample.inputs) {
        const std::vector<Tensor> operands = operands_of(def, c.sample);
        c.sample.values.clear();
        for (size_t i = 0; i < operands.size(); ++i) {
          c.sample.values.emplace_back(static_cast<int>(i), converted(operands[i], bound.in[i].dtype));
        }
        c.sample.inputs = bound.in;
        c.sample.attrs = op.attrs;
      }
      cases.push_back(std::move(c));
      break;
    }
  }
  return cases;
}

inline bool runs_in(const ir::OpDef& def, DType dtype) {
  return std::find(def.dtypes.begin(), def.dtypes.end(), dtype) != def.dtypes.end();
}

// Half an ulp at 1, and the smallest normal number: below it f32 flushes and f16 has fewer digits.
inline double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0;
  }
}
inline double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return DBL_MIN;
    case DType::f16:
      return 0x1p-14;
    case DType::f32:
    case DType::bf16:
      return FLT_MIN;
    default:
      return 0;
  }
}

inline double rounded(double v, DType dtype) {
  unsigned char bits[8];
  set_element(dtype, bits, 0, v);
  return element_as_double(dtype, bits, 0);
}

// Equal, or within `relative` of max(1, |want|). Infinities and NaN must be the same.
inline void expect_near(const Tensor& got, const std::vector<double>& want, double relative, const std::string& where) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(want.size())) << where;
  const DType dtype = got.dtype();
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double g = got.at(i), w = want[i];
    if (same_value(g, w) || same_value(g, rounded(w, dtype))) continue;
    const double bound = relative * std::max(1.0, std::fabs(w)) + smallest_normal(dtype);
    ASSERT_LE(std::fabs(g - w), bound) << where << ": element " << i << " is " << g << ", expected " << w;
  }
}

}  // namespace aicf::test
