// Source: the GGUF specification (ggml, docs/gguf.md).
#include "base/format/gguf.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>

#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel {
namespace {

constexpr uint32_t kGgufVersion = 3;
constexpr uint64_t kGgufAlignment = 32;  // of files that do not state another alignment
constexpr uint32_t kFloatKey = 6, kTextKey = 8, kF32Tensor = 0;

/// Builds the bytes that precede the tensors.
class GgufHead {
 public:
  template <typename Number>
  void number(Number value) {
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    bytes_.append(bytes, sizeof(value));
  }
  void text(const std::string& value) {
    number(static_cast<uint64_t>(value.size()));
    bytes_ += value;
  }
  void value(const std::string& text_value) {
    number(kTextKey);
    text(text_value);
  }
  void value(float number_value) {
    number(kFloatKey);
    number(number_value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_ = "GGUF";
};

std::string gguf_padding(uint64_t size) {
  return std::string((kGgufAlignment - size % kGgufAlignment) % kGgufAlignment, '\0');
}

std::string gguf_head(const GgufKeys& keys, const TensorMap& tensors) {
  GgufHead head;
  head.number(kGgufVersion);
  head.number(static_cast<uint64_t>(tensors.size()));
  head.number(static_cast<uint64_t>(keys.size()));
  for (const auto& [key, value] : keys) {
    head.text(key);
    std::visit([&](const auto& held) { head.value(held); }, value);
  }
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    EK_CHECK(tensor.scalar_type() == at::kFloat, kInternal, "gguf: ", name, " is ", tensor.scalar_type());
    head.text(name);
    head.number(static_cast<uint32_t>(tensor.dim()));
    for (int64_t i = tensor.dim(); i-- > 0;) head.number(static_cast<uint64_t>(tensor.size(i)));
    head.number(kF32Tensor);
    head.number(offset);
    offset += tensor.nbytes() + gguf_padding(tensor.nbytes()).size();
  }
  return head.bytes() + gguf_padding(head.bytes().size());
}

}  // namespace

void save_gguf(const std::filesystem::path& file, const GgufKeys& keys, const TensorMap& tensors) {
  AtomicFile out(file);
  out.write(gguf_head(keys, tensors));
  for (const auto& [name, tensor] : tensors) {
    const auto whole = tensor.detach().cpu().contiguous();
    out.write({static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()});
    out.write(gguf_padding(whole.nbytes()));
  }
  out.commit();
}

}  // namespace evenkeel
