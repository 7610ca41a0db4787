// Ops on Values. Each appends to the graph of its operands and returns the result; operands of different graphs, or of
// types that do not fit, throw Error naming the op and the types it got. `aicf ops` lists the records.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "aicf/value.h"

namespace aicf {

// --- pointwise: numpy broadcasting of operands, which have one dtype ----------------------------------------
Value add(Value a, Value b);
Value sub(Value a, Value b);
Value mul(Value a, Value b);
Value div(Value a, Value b);
Value pow(Value a, Value b);      // gradient to b: 0 where a is 0 and b >= 0, NaN where a < 0
Value maximum(Value a, Value b);  // NaN if either is; ties split the gradient in half
Value minimum(Value a, Value b);
Value neg(Value x);
Value abs(Value x);   // gradient 0 at 0
Value sign(Value x);  // gradient 0
Value exp(Value x);
Value expm1(Value x);
Value log(Value x);
Value log1p(Value x);
Value sqrt(Value x);
Value rsqrt(Value x);  // 1 / sqrt(x)
Value square(Value x);
Value reciprocal(Value x);
Value sin(Value x);
Value cos(Value x);
Value tanh(Value x);
Value erf(Value x);
Value sigmoid(Value x);
Value relu(Value x);  // x < 0 ? 0 : x; gradient 0 at 0
Value floor(Value x);
Value ceil(Value x);
Value round(Value x);  // half to even
// Comparisons give bool and no gradient.
Value equal(Value a, Value b);
Value not_equal(Value a, Value b);
Value less(Value a, Value b);
Value less_equal(Value a, Value b);
Value greater(Value a, Value b);
Value greater_equal(Value a, Value b);
Value logical_and(Value a, Value b);
Value logical_or(Value a, Value b);
Value logical_not(Value x);
Value isfinite(Value x);
// condition (bool) ? a : b. The branch not taken gets a zero cotangent.
Value select(Value condition, Value a, Value b);
// To integers truncates towards zero; to bool is x != 0.
Value cast(Value x, DType dtype);

Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator-(Value x);
// A literal takes the dtype of the other operand.
Value operator+(Value a, double b);
Value operator-(Value a, double b);
Value operator*(Value a, double b);
Value operator/(Value a, double b);
Value operator+(double a, Value b);
Value operator-(double a, Value b);
Value operator*(double a, Value b);
Value operator/(double a, Value b);
// A rank-0 constant in the graph of `like`, of the dtype given or of like's.
Value literal(Value like, double value);
Value literal(Value like, double value, DType dtype);

// --- reductions: axes may be negative; an empty list means all ----------------------------------------------
// The order of summation is fixed by the shape alone (docs/design.md).
Value sum(Value x, const std::vector<int>& axes = {}, bool keepdims = false);
Value mean(Value x, const std::vector<int>& axes = {}, bool keepdims = false);
Value prod(Value x, const std::vector<int>& axes = {}, bool keepdims = false);
Value max(Value x, const std::vector<int>& axes = {}, bool keepdims = false);  // ties share the gradient evenly
Value min(Value x, const std::vector<int>& axes = {}, bool keepdims = false);
Value argmax(Value x, int axis = -1, bool keepdims = false);  // i32; the first of equals; no gradient

// --- shape ---------------------------------------------------------------------------------------------------
Value reshape(Value x, const Shape& shape);
Value flatten(Value x, int from_axis = 1);                           // axes from_axis… become one
Value transpose(Value x, const std::vector<int>& permutation = {});  // empty: reversed
Value broadcast(Value x, const Shape& shape);                        // numpy rules
// The elements start[i], start[i]+step[i], … below limit[i], along every axis. step empty: all 1.
Value slice(Value x, const std::vector<int64_t>& start, const std::vector<int64_t>& limit,
            const std::vector<int64_t>& step = {});
Value concat(const std::vector<Value>& parts, int axis);
std::vector<Value> split(Value x, const std::vector<int64_t>& sizes, int axis);
std::vector<Value> split(Value x, int pieces, int axis);  // equal pieces
// `low[i]` and `high[i]` copies of `value` before and after along axis i.
Value pad(Value x, const std::vector<int64_t>& low, const std::vector<int64_t>& high, double value = 0);
// 0, 1, 2, … along `axis` of the shape, in the graph of `like`.
Value iota(Value like, DType dtype, const Shape& shape, int axis = 0);

// --- indexing ------------------------------------------------------------------------------------------------
// x (B…, P…, N, Q…), index (B…, I…) → (B…, P…, I…, Q…), where B are the first `batch_dims` axes and N is `axis`. With
// batch_dims == axis it picks one element a row. Indices out of [0, N) stop the step with an error (capture contract).
Value gather(Value x, Value index, int axis = 0, int batch_dims = 0);
// base plus `updates` added at the places gather(base, index) would read; repeated indices add up, in index order.
Value scatter_add(Value base, Value index, Value updates, int axis = 0, int batch_dims = 0);

// --- matmul --------------------------------------------------------------------------------------------------
// a (…, M, K) · b (…, K, N) → (…, M, N); leading axes broadcast. transpose_a/b swap the last two axes of that operand.
Value matmul(Value a, Value b, bool transpose_a = false, bool transpose_b = false);

// --- composites ----------------------------------------------------------------------------------------------
Value softmax(Value x, int axis = -1);      // a row of -inf gives 0 and gradient 0
Value log_softmax(Value x, int axis = -1);  // a row of -inf gives -inf and gradient 0
Value gelu(Value x, bool tanh_approximation = false);
// Over the last axis, variance by two passes. gamma, beta (C).
Value layer_norm(Value x, Value gamma, Value beta, double eps = 1e-5);
Value rms_norm(Value x, Value gamma, double eps = 1e-6);
// q (…, Tq, d), k (…, Tk, d), v (…, Tk, dv) → softmax(q·kᵀ·scale)·v (…, Tq, dv), leading axes alike. `scale` is 1/√d
// unless given. Causal: query i sees the keys up to i + Tk - Tq (aligned bottom-right); a query that sees none gives 0
// and has gradient 0. With dropout above 0, dropout(softmax(…), dropout)·v.
Value attention(Value q, Value k, Value v, bool causal = false, std::optional<double> scale = std::nullopt,
                double dropout = 0);
enum class Reduction : uint8_t { none, sum, mean };
// logits (…, C), labels (…) i32 or i64 → scalar, or (…) for none. Labels equal to ignore_index count for nothing; the
// mean divides by the labels not ignored, and is 0 when all are. Other labels out of [0, C) stop the step.
Value cross_entropy(Value logits, Value labels, Reduction reduction = Reduction::mean, int64_t ignore_index = -100);
// The same, and the number of labels not ignored as f32[] ({loss, count}).
std::vector<Value> cross_entropy_with_count(Value logits, Value labels, Reduction reduction = Reduction::mean,
                                            int64_t ignore_index = -100);
Value mse(Value prediction, Value target, Reduction reduction = Reduction::mean);

// --- random --------------------------------------------------------------------------------------------------
// In training (CompileOptions::training) each element is 0 with probability p and x / (1 - p) otherwise, and so is its
// gradient; else, and where p is 0, x itself. 0 <= p < 1. Srivastava et al. 2014, "Dropout", scaled in training.
// The draws are Philox 4x32-10 of the states `rng.seed` (i64, the model's seed) and `rng.offset` (i64, 0 at first, 1
// more after each training step), and of the op's number in the model: no two dropouts, and no two steps, share a mask.
Value dropout(Value x, double p);

// --- gradients -----------------------------------------------------------------------------------------------
// x itself; no gradient flows to x.
Value stop_gradient(Value x);
// The value f(inputs) with the gradient df(inputs, output, cotangent): one value per input. Both are traced once, here.
Value with_gradient(const std::vector<Value>& inputs, const std::function<Value(const std::vector<Value>&)>& f,
                    const std::function<std::vector<Value>(const std::vector<Value>&, Value, Value)>& df);

}  // namespace aicf
