// Fuzzes a PEFT folder. The input is adapter_config.json up to the first NUL, and adapter_model.safetensors after it.
// Without a NUL, a valid adapter file is used.
#include "lora/peft.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_model.h"

namespace {

using namespace evenkeel;

const lora::Sites& sites() {
  static const lora::Sites sites = [] {
    const std::vector<std::string> targets{"q_proj", "up_proj"};
    return models::load_model(fuzz::small_model(fuzz::folder() / "model"))->sites(targets);
  }();
  return sites;
}

std::string fitting_adapter() {
  lora::save_peft_adapter(fuzz::folder() / "fitting", lora::make_adapters(sites(), 2, 1.0, 7), sites(),
                          {.base_model = "small", .whole_layers = false});
  return read_file(fuzz::folder() / "fitting/adapter_model.safetensors");
}

}  // namespace

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  static const std::string fitting = fitting_adapter();
  const auto end = input.find('\0');
  fuzz::write("adapter_config.json", input.substr(0, end));
  fuzz::write("adapter_model.safetensors", end == std::string_view::npos ? fitting : input.substr(end + 1));
  lora::load_peft_adapter(fuzz::folder(), sites());
}
