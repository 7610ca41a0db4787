// Program::attach: a data set on the device, and the order in which steps() takes its batches.
#include "api/examples.h"

#include "aicf/error.h"
#include "io/batch_order.h"
#include "runtime/program.h"

namespace aicf {
namespace {

using io::BatchOrder;

Program::Impl& checked(const std::shared_ptr<Program::Impl>& impl) {
  if (impl == nullptr) throw Error("use of an empty Program", "compile() makes one");
  return *impl;
}

Program::Impl::Order in_order(int64_t examples, const LoaderOptions& options, const LoaderState& at) {
  const auto order = std::make_shared<BatchOrder>(examples, options, at);
  return {[order](int32_t* to) { order->next(to); }, order};
}

// The order of the attached data set.
const BatchOrder& attached(const void* kept, const char* call) {
  if (kept == nullptr) throw Error(std::string(call) + ": no data set is attached", "attach() one first");
  return *static_cast<const BatchOrder*>(kept);
}

}  // namespace

std::optional<int64_t> api::attached_examples(Program::Impl& impl) {
  const auto order = impl.order().first;
  if (order == nullptr) return std::nullopt;
  return static_cast<const BatchOrder*>(order.get())->examples();
}

void Program::attach(const Dataset& data, const LoaderOptions& options) {
  Impl& impl = checked(impl_);
  if (options.transform)
    throw Error("attach: a transform runs on the host, and the data set is on the device", "use a Loader");
  impl.attach({data.tensors(), options.batch}, in_order(data.size(), options, {options.seed, 0, 0}));
}

LoaderState Program::position() const {
  const auto [kept, batches] = checked(impl_).order();
  return attached(kept.get(), "position").after(batches);
}

void Program::set_position(const LoaderState& at) {
  checked(impl_).reorder([&](const void* kept) {
    const BatchOrder& known = attached(kept, "set_position");
    return in_order(known.examples(), known.options(), at);
  });
}

}  // namespace aicf
