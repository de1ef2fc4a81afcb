// Fuzzes model.safetensors.index.json with two valid shards.
#include <ATen/ATen.h>

#include "base/format/safetensors.h"
#include "models/checkpoint.h"
#include "tests/fuzz/fuzz.h"

namespace {

bool shards_written() {
  for (const auto* shard : {"a", "b"})
    evenkeel::save_safetensors(evenkeel::fuzz::folder() / (std::string(shard) + ".safetensors"),
                               {{std::string(shard) + ".weight", at::ones({2, 3})}});
  return true;
}

}  // namespace

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  static const bool written = shards_written();
  fuzz::write("model.safetensors.index.json", input);
  const auto source = models::folder_source(fuzz::folder(), models::BaseDtype::kCheckpoint);
  if (written && source->has("a.weight")) source->take("a.weight", {2, 3});
  source->finish();
}
