#include "lora/packing.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/format/safetensors.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel::lora {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string layout_of(const std::vector<TensorPlace>& tensors) {
  std::string text;
  for (const auto& tensor : tensors)
    text += concat(tensor.name, '\n', c10::toString(tensor.type), " [", join(tensor.shape), "]\n");
  return sha256(text);
}

}  // namespace

std::string_view layer_of(std::string_view site) {
  for (size_t begin = 0; begin < site.size();) {
    const size_t end = std::min(site.find('.', begin), site.size());
    if (is_number(site.substr(begin, end - begin))) return site.substr(0, end);
    begin = end + 1;
  }
  return site;
}

/// Returns the name of the array of a tensor. Tensor names are "<kind>/<site>/<factor>" or "<kind>/<site>.<noun>".
std::string array_of(std::string_view name, int64_t axes, at::ScalarType type) {
  const size_t kind = std::min(name.find('/'), name.size());
  const size_t last = name.rfind(name.starts_with("extra/") ? '.' : '/');
  if (axes < 2 || last == name.npos || last <= kind) return concat("vectors/", c10::toString(type));
  const auto layer = layer_of(name.substr(kind + 1, last - kind - 1));
  return concat(name.substr(0, kind), '/', layer, '/', name.substr(last + 1));
}

Packing pack_payload(std::string_view beginning, const std::string& source) {
  const auto head = read_safetensors_head(beginning, source);
  Packing packing{.head = std::string(beginning.substr(0, static_cast<size_t>(head.bytes))),
                  .arrays = {},
                  .bytes = head.bytes + head.data_bytes(),
                  .layout = layout_of(head.tensors)};
  std::set<std::string> begun;
  for (const auto& tensor : head.tensors) {
    const auto name = array_of(tensor.name, static_cast<int64_t>(tensor.shape.size()), tensor.type);
    if (packing.arrays.empty() || packing.arrays.back().name != name) {
      EK_CHECK(begun.insert(name).second, kCheckpoint, source, ": ", shown(tensor.name),
               " lies apart from the others of ", shown(name));
      packing.arrays.push_back({name, tensor.type, head.bytes + static_cast<int64_t>(tensor.begin)});
    }
    auto& array = packing.arrays.back();
    EK_CHECK(array.type == tensor.type, kCheckpoint, source, ": ", shown(tensor.name), " is of ",
             c10::toString(tensor.type), ", others of ", shown(name), " of ", c10::toString(array.type));
    array.bytes += static_cast<int64_t>(tensor.end - tensor.begin);
  }
  return packing;
}

}  // namespace evenkeel::lora
