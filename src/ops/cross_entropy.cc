// cross_entropy: log(sum(exp(logits))) - logits[label], and how many labels are counted. A label equal to ignore_index
// counts for nothing; the mean divides by those that count, and is 0 when none does. A row of -inf has loss 0 and
// gradient 0. Computed in f32 or better; the gradient is (softmax - one-hot) times the cotangent, by comparison instead
// of scatter. Rows of many classes are read once: each chunk has its own largest element and sum of exponentials, and
// the sums meet at the row's (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax").
#include <fmt/format.h>

#include "ops/cross_entropy_samples.h"
#include "ops/defs.h"
#include "ops/loss.h"
#include "ops/numeric.h"
#include "ops/softmax.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

int64_t classes(std::span<const TensorType> in, const ir::Attrs&) { return in[0].shape[in[0].shape.rank() - 1]; }

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const TensorType& logits = ctx.in[0];
  const TensorType& labels = ctx.in[1];
  if (!is_float(logits.dtype)) throw mismatch(ctx, "float logits", std::string(name_of(logits.dtype)));
  if (labels.dtype != i32 && labels.dtype != i64) {
    throw mismatch(ctx, "i32 or i64 labels", std::string(name_of(labels.dtype)), "cast them to i32");
  }
  const int rank = logits.shape.rank() - 1;
  if (rank < 0 || logits.shape[rank] == 0) {
    throw mismatch(ctx, "logits (…, C), C the number of classes", to_string(logits.shape));
  }
  const Shape rows(logits.shape.dims().first(static_cast<size_t>(rank)));
  if (labels.shape != rows) {
    throw mismatch(ctx, fmt::format("labels of shape {}", to_string(rows)), to_string(labels.shape));
  }
  const int64_t ignore = ctx.attrs.get_int("ignore_index");
  if (ignore != static_cast<int32_t>(ignore)) throw mismatch(ctx, "an ignore_index of 32 bits", std::to_string(ignore));
  return {{wide(logits.dtype), reduction_of(ctx) == Reduction::none ? rows : Shape{}}, {f32, {}}};
}

struct Rows {
  Value logits;    // (R, C), wide
  Value labels;    // (R), ignored ones replaced by 0
  Value counted;   // (R): the label is not ignored
  Value of_label;  // (R): the label's logit
  Exponentials e;
};

// The largest divisor of `classes` that makes a good row of its own, a whole number of vectors; 0 where there is none,
// or where the row is a good one itself.
int64_t chunk_of(int64_t classes) {
  constexpr int64_t kVector = 8, kMost = 1024;
  if (classes <= 2 * kMost) return 0;
  for (int64_t chunk = kMost; chunk >= kMost / 8; chunk -= kVector) {
    if (classes % chunk == 0) return chunk;
  }
  return 0;
}

Exponentials in_chunks(Value logits, int64_t chunk) {
  const int64_t rows = logits.shape()[0], chunks = logits.shape()[1] / chunk;
  const Exponentials each = exponentials(reshaped(logits, {rows, chunks, chunk}), 2);
  // Of what each chunk's sum is scaled by, the largest is 1.
  const Exponentials tops = exponentials(reshaped(each.top, {rows, chunks}), 1);
  Exponentials all;
  all.top = tops.top;
  all.shifted = logits - at_least_lowest(tops.top);
  all.exps = exp(all.shifted);
  all.total = sum(tops.exps * reshaped(each.total, {rows, chunks}), {1}, true);
  return all;
}

// (R, C): the element of the label.
Value hit(const Rows& rows) {
  const Shape shape = rows.logits.shape();
  return equal(iota(rows.labels, rows.labels.dtype(), {1, shape[1]}, 1), reshaped(rows.labels, {shape[0], 1}));
}

Rows prepare(Value logits, Value labels, const ir::Op& op) {
  Rows rows;
  const Value given = rows_of(logits);
  const int64_t classes = given.shape()[1];
  rows.logits = widen(given);
  labels = reshaped(labels, {rows.logits.shape()[0]});
  rows.counted = not_equal(labels, literal(labels, static_cast<double>(op.attrs.get_int("ignore_index"))));
  rows.labels = select(rows.counted, labels, literal(labels, 0));
  const int64_t chunk = rows.logits.shape()[0] == 0 ? 0 : chunk_of(classes);
  rows.e = chunk == 0 ? exponentials(rows.logits, 1) : in_chunks(rows.logits, chunk);
  if (chunk != 0) {
    rows.of_label = widen(gather(given, rows.labels, 1, 1));
  } else {
    // One element of each row, as a sum, so that rows need not be in memory.
    rows.of_label = sum(select(hit(rows), rows.logits, literal(rows.logits, 0)), {1});
  }
  return rows;
}

// (R): counted, and not a row of -inf.
Value live(const Rows& rows) {
  return logical_and(rows.counted, logical_not(is_minus_infinity(reshaped(rows.e.top, rows.counted.shape()))));
}

// Counted in i32, which is exact far beyond the integers of f32.
Value count_of(const Rows& rows) { return sum(cast(rows.counted, i32), {0}); }

// The loss is the sum divided by this.
Value divisor(const Rows& rows) {
  const Value count = count_of(rows);
  return cast(maximum(count, literal(count, 1)), rows.logits.dtype());
}

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const Rows rows = prepare(ctx.in[0], ctx.in[1], ctx.op);
  const Value shifted = rows.of_label - reshaped(at_least_lowest(rows.e.top), rows.labels.shape());
  const Value each = reshaped(log_total(rows.e), rows.labels.shape()) - shifted;
  const Value losses = select(live(rows), each, literal(each, 0));
  const Value count = cast(count_of(rows), f32);
  switch (reduction_of(ctx.op)) {
    case Reduction::none:
      return {reshaped(losses, ctx.in[1].shape()), count};
    case Reduction::sum:
      return {sum(losses, {0}), count};
    case Reduction::mean:
      break;
  }
  return {sum(losses, {0}) / divisor(rows), count};
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  if (!ctx.cotangents[0]) return ir::zero_gradient(ctx);
  const TensorType type = ctx.in[0].type();
  const Rows rows = prepare(ctx.in[0], ctx.in[1], ctx.op);
  const Shape shape = rows.logits.shape();
  const Shape column{shape[0], 1};
  Value scale = *ctx.cotangents[0];
  if (reduction_of(ctx.op) == Reduction::none) scale = reshaped(scale, column);
  if (reduction_of(ctx.op) == Reduction::mean) scale = scale / divisor(rows);
  const Value p = probabilities(rows.e);
  const Value g = select(hit(rows), p - 1, p) * scale;
  const Value dx = select(reshaped(live(rows), column), g, literal(g, 0));
  return {reshaped(cast(dx, type.dtype), type.shape), std::nullopt};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  return cost_per_element(in, out, 4);
}

}  // namespace

const ir::OpDef cross_entropy_def = {
    .name = "cross_entropy",
    .num_inputs = 2,
    .operand_names = {"logits", "labels"},
    .infer = infer,
    .grad = grad,
    .expand = expand,
    .flags = ir::kComposite,
    .attrs = {{"ignore_index", ir::AttrSpec::Kind::integer, true}, {"reduction", ir::AttrSpec::Kind::text, true}},
    .dtypes = {f32, f64, bf16, f16},
    .cost = cost,
    .samples = samples_cross_entropy,
    .index_operands = {{1, classes}},
};

}  // namespace ops

std::vector<Value> cross_entropy_with_count(Value logits, Value labels, Reduction reduction, int64_t ignore_index) {
  return ir::emit_all(ops::cross_entropy_def, {logits, labels},
                      {{"ignore_index", ignore_index}, {"reduction", ops::reduction_name(reduction)}});
}

Value cross_entropy(Value logits, Value labels, Reduction reduction, int64_t ignore_index) {
  return cross_entropy_with_count(logits, labels, reduction, ignore_index)[0];
}

}  // namespace aicf
