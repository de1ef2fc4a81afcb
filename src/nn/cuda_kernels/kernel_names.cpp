#include "nn/cuda_kernels/kernel_names.h"

#include <algorithm>

#include "base/plain/error.h"

namespace evenkeel::nn::cuda {

KernelSet KernelSet::read(std::string_view text, std::string_view key, std::string_view place) {
  if (text == "all") return all();
  if (text == "none") return {};
  KernelSet set;
  for (size_t begin = 0, end = 0; end != text.npos; begin = end + 1) {
    end = text.find(',', begin);
    const auto name = text.substr(begin, end == text.npos ? end : end - begin);
    const auto known = std::find(kKernelNames.begin(), kKernelNames.end(), name);
    const unsigned bit = known == kKernelNames.end() ? 0 : 1u << static_cast<unsigned>(known - kKernelNames.begin());
    EK_CHECK(bit != 0 && (set.bits_ & bit) == 0, kConfig, key, " is \"", text,
             "\", allowed: auto, all, none, or some of ", all().text(), ", each once, with commas between them", place);
    set.bits_ |= bit;
  }
  return set;
}

std::string KernelSet::text() const {
  if (is_empty()) return "none";
  std::string text;
  for (size_t i = 0; i < kKernelNames.size(); ++i)
    if (has(static_cast<Kernel>(i))) text += concat(text.empty() ? "" : ",", kKernelNames[i]);
  return text;
}

}  // namespace evenkeel::nn::cuda
