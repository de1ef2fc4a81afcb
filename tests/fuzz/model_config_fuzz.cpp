// Fuzzes a model's config.json. The weights are those of a small model that the first seed describes.
#include "models/causal_lm.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_model.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  static const fs::path model = fuzz::small_model(fuzz::folder() / "model");
  fuzz::write("model/config.json", input);
  models::load_model(model);
}
