#include "backend/cuda/matmul_library.h"

#include <fmt/format.h>

#include <memory>

#include "aicf/error.h"
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/matmul_choice.h"
#include "ir/op.h"

namespace aicf::backend::cuda {
namespace {

constexpr const char* kOneByOne = ", one by one";

struct Chosen {
  std::shared_ptr<const Product> product;
  Algorithm algorithm;
  bool split = false;

  // "cublasLt 66/tile 20/stages 35/splitk 1, one by one: ALGORITHM"
  std::string text() const {
    return fmt::format("{}{}: {}", algorithm.name(), split ? kOneByOne : "", text_of(algorithm));
  }
};

Chosen choose(const KernelQuery& query) {
  const MatmulTypes types = {query.in[0].dtype, query.out[0].dtype, query.attrs.get_string("compute") == "tf32"};
  const MatmulBytes bytes = {query.in[0].bytes(), query.in[1].bytes(), query.out[0].bytes()};
  const MatmulShape shape = matmul_shape(query);
  if (const std::string known = known_choice(query); is_of_library(known)) {
    const bool split = known.find(kOneByOne) != std::string::npos;
    auto product = std::make_shared<const Product>(split ? unbatched(shape) : shape, types);
    const std::optional<Algorithm> algorithm = known_algorithm(*product, bytes, known.substr(known.rfind(' ') + 1));
    if (algorithm) return {std::move(product), *algorithm, split};
  }
  // Not every library kernel takes every batch (a stride of 0, many matrices); one by one they are plain products.
  for (const bool split : {false, true}) {
    if (split && shape.batch == 1) break;
    auto product = std::make_shared<const Product>(split ? unbatched(shape) : shape, types);
    const std::optional<Algorithm> algorithm = choose_algorithm(*product, bytes, query.tuning);
    if (algorithm) return {std::move(product), *algorithm, split};
  }
  throw Error(fmt::format("{}: no algorithm of cuBLASLt runs it", call_text(query.def, query.in)));
}

}  // namespace

bool is_of_library(const std::string& choice) { return choice.starts_with(kLibrary); }

LibraryMatmul library_matmul(const KernelQuery& query) {
  const std::string what = call_text(query.def, query.in);
  if (const BlasLt& library = blas_lt(); library.handle == nullptr) {
    // A plan can be made and looked at where it cannot run.
    const auto refuse = [what, why = library.missing](cudaStream_t, void* const*) {
      throw Error(fmt::format("{}: cuBLASLt cannot run here: {}", what, why), "use --backend cpu");
    };
    return {refuse, kLibrary, 0, kLibrary};
  }
  Chosen chosen = choose(query);
  LibraryMatmul matmul{{}, chosen.algorithm.name(), chosen.algorithm.workspace_bytes, chosen.text()};
  matmul.run = [chosen = std::move(chosen), what](cudaStream_t stream, void* const* buffers) {
    check(chosen.product->run(chosen.algorithm, buffers, stream), what.c_str());
  };
  return matmul;
}

}  // namespace aicf::backend::cuda
