#include <ATen/Parallel.h>

#include <algorithm>

#include "base/format/limits.h"
#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "train/pretraining.h"

namespace evenkeel::train {
namespace {

/// Estimates the bytes of the text and of its tokens. Both are in memory until the text is freed.
int64_t text_bytes(const PretrainConfig& config) {
  constexpr int64_t kDocumentBytes = 2048, kWithTokens = 3;
  int64_t bytes = config.data.documents * kDocumentBytes;
  for (const auto& file : config.data.files) {
    std::error_code error;
    const auto size = fs::file_size(expand_data_path(file, "data.files"), error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return kWithTokens * bytes;
}

}  // namespace

models::MemoryPlan memory_plan(const PretrainConfig& config) {
  const auto model = models::load_shape(config.model.config, models::BaseDtype::kFloat32);
  const auto& spec = model->spec();
  int64_t weights = 0;
  for (const auto& [name, tensor] : model->parameters()) weights += static_cast<int64_t>(tensor.nbytes());
  const int64_t tokens = std::min(config.train.batch_size * config.train.sequence_length, limits::kTokens);
  const models::PassShape pass{
      .tokens = tokens, .targets = tokens, .top_k = spec.top_k, .threads = at::get_num_threads()};
  return {.parts = {{"weights, gradients and moments", 4 * weights, "the model's size"},
                    {"text and tokens", text_bytes(config), "data.documents or data.files"},
                    {concat("activations of a step of ", tokens, " tokens"),
                     models::kept_bytes(spec, pass) + models::passing_bytes(spec, pass),
                     "train.batch_size or train.sequence_length"}},
          .mapped = 0};
}

}  // namespace evenkeel::train
