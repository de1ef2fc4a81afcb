// Fuzzes an arriving message whose ids are computed from its content. The input is the body of the Array, one line;
// then an order, one line; then the chunks, each up to the next byte 0xfe.
#include <algorithm>
#include <map>

#include "flower/format/calls.h"
#include "flower/server/assembly.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace evenkeel;
using namespace evenkeel::flower;

struct Forge {
  flower::Tree add(std::string_view type, const std::vector<flower::Tree>& children, std::string_view body) {
    std::vector<std::string> ids;
    for (const auto& child : children) ids.push_back(child.id);
    std::string content = concat(type, " ", join(ids, ","), " ", body.size());
    content.push_back('\0');
    content += body;
    const std::string id = flower::object_id(content);
    objects[id] = content;
    return {.id = id, .children = children};
  }
  std::map<std::string, std::string> objects;
};

std::string_view take_until(std::string_view& text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  const auto part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

}  // namespace

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  const auto body = take_until(input, '\n'), order = take_until(input, '\n');
  Forge forge;
  std::vector<flower::Tree> chunks;
  while (!input.empty() && chunks.size() < 16) {
    flower::Tree chunk = forge.add("ArrayChunk", {}, take_until(input, '\xfe'));
    if (std::find(chunks.begin(), chunks.end(), chunk) == chunks.end()) chunks.push_back(std::move(chunk));
  }
  const flower::Tree array = forge.add("Array", chunks, body);
  const flower::Tree arrays =
      forge.add("ArrayRecord", {array}, flower::references_to_json({{"a", array.id}, {"b", array.id}}));
  const flower::Tree dict = forge.add("RecordDict", {arrays}, flower::references_to_json({{"arrays", arrays.id}}));
  const flower::Tree message = forge.add("Message", {dict}, flower::encode_message({}, {}));

  std::vector<std::vector<std::byte>> memory;
  const auto place = [&](const flower::Content& content) {
    flower::ReceiveBuffers places;
    for (const auto& head : content.heads()) memory.emplace_back(head.bytes());
    for (auto& bytes : memory) places.arrays.emplace_back(bytes);
    return places;
  };
  flower::Assembly assembly(message, {.data = 1 << 20}, place, fuzz::folder(), 1 << 20);
  auto ids = assembly.ids();
  for (size_t i = 0; i < order.size() && i + 1 < ids.size(); ++i)
    std::swap(ids[i], ids[i + static_cast<unsigned char>(order[i]) % (ids.size() - i)]);
  for (const auto& id : ids) assembly.take(id, forge.objects.at(id));
  if (!assembly.complete()) fuzz::finding("a message that is there and not complete", {});
  if (memory.at(0) != memory.at(1)) fuzz::finding("two names of one array differ", {});
}
