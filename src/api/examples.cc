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

std::function<void(int32_t*)> batches_of(const std::shared_ptr<BatchOrder>& order) {
  return [order](int32_t* to) { order->next(to); };
}

// The order of the attached data set, and how far it is.
std::pair<const BatchOrder*, uint64_t> attached(Program::Impl& impl, const char* call) {
  const auto [order, batches] = impl.order();
  if (order == nullptr) throw Error(std::string(call) + ": no data set is attached", "attach() one first");
  return {static_cast<const BatchOrder*>(order.get()), batches};
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
  const auto order = std::make_shared<BatchOrder>(data.size(), options, LoaderState{options.seed, 0, 0});
  impl.attach({data.tensors(), options.batch}, batches_of(order), order);
}

LoaderState Program::position() const {
  const auto [order, batches] = attached(checked(impl_), "position");
  return order->after(batches);
}

void Program::set_position(const LoaderState& at) {
  Impl& impl = checked(impl_);
  const BatchOrder* known = attached(impl, "set_position").first;
  const auto order = std::make_shared<BatchOrder>(known->examples(), known->options(), at);
  impl.reorder(batches_of(order), order);
}

}  // namespace aicf
