#include <ATen/Parallel.h>

#include <algorithm>

#include "base/format/limits.h"
#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "base/system/device.h"
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

int64_t weight_bytes(const models::CausalLm& model) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : model.parameters()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

models::MemoryPart state(int64_t weights) {
  return {"weights, gradients and moments", 4 * weights, "the model's size"};
}

/// Returns the memory of a step's activations. \param kept_bytes  counts those of the engine
models::MemoryPart activations(const PretrainConfig& config, const models::ModelSpec& spec,
                               int64_t (*kept_bytes)(const models::ModelSpec&, const models::PassShape&)) {
  const int64_t tokens = std::min(config.train.batch_size * config.train.sequence_length, limits::kTokens);
  const models::PassShape pass{
      .tokens = tokens, .targets = tokens, .top_k = spec.top_k, .threads = at::get_num_threads()};
  return {concat("activations of a step of ", tokens, " tokens"),
          kept_bytes(spec, pass) + models::passing_bytes(spec, pass), "train.batch_size or train.sequence_length"};
}

}  // namespace

models::MemoryPlan memory_plan(const PretrainConfig& config) {
  const auto model = models::load_shape(config.model.config, models::BaseDtype::kFloat32);
  const int64_t weights = weight_bytes(*model);
  models::MemoryPart text{"text and tokens", text_bytes(config), "data.documents or data.files"};
  if (names_gpu(config.model.device))
    return {.parts = {text, {"weights, when they are drawn and written", weights, "the model's size"}}, .mapped = 0};
  const bool by_operators = config.model.compute().engine == nn::EngineKind::kAten;
  return {.parts = {state(weights), text,
                    activations(config, model->spec(),
                                by_operators ? models::kept_bytes_of_operators : models::kept_bytes)},
          .mapped = 0};
}

models::MemoryPlan device_memory_plan(const PretrainConfig& config) {
  const auto model = models::load_shape(config.model.config, models::BaseDtype::kFloat32);
  return {.parts = {models::device_libraries(), state(weight_bytes(*model)),
                    activations(config, model->spec(), models::kept_bytes_of_operators)},
          .mapped = 0};
}

void require_memory(const PretrainConfig& config, c10::Device device) {
  models::require_memory(memory_plan(config), machine::memory(), "pre-training");
  models::require_device_memory(device_memory_plan(config), device, "pre-training");
}

}  // namespace evenkeel::train
