#include "flower/federation/mask_messages.h"

#include <algorithm>

#include "base/plain/base64.h"
#include "base/plain/text.h"

namespace evenkeel::flower {

MaskHeader::MaskHeader(const Envelope& envelope, std::initializer_list<std::string_view> fields)
    : json_(parse_json(envelope.header, envelope.kind, kData, {.bytes = size_t{64} << 20})), place_(envelope.kind) {
  for (const auto& member : view().members())
    EK_CHECK(std::find(fields.begin(), fields.end(), member.key()) != fields.end(), kData, place_, " has the field ",
             shown(member.key()), ", which this program does not know");
}

std::vector<secure::KeysOfMember> MaskHeader::keys() const {
  std::vector<secure::KeysOfMember> keys;
  const JsonView all = at("keys");
  for (const auto& one : all.items()) keys.push_back(secure::read_as<secure::KeysOfMember>(one));
  return keys;
}

std::string MaskHeader::bytes(std::string_view field) const {
  auto decoded = from_base64(at(field).string());
  EK_CHECK(decoded, kData, place_, ": ", field, " is no Base64");
  return std::move(*decoded);
}

std::string name_of(const secure::RoundContext& context) {
  return to_base64(crypto::view_of(secure::digest_of(context)));
}

std::optional<fed::NoiseTerms> noise_in(const secure::RoundContext& context) {
  if (context.variance == 0) return {};
  return fed::NoiseTerms{context.clip, {context.variance, context.indicator_variance}};
}

OrderedJson to_json(const std::vector<secure::KeysOfMember>& keys) {
  OrderedJson list = OrderedJson::array();
  for (const auto& one : keys) list.push_back(secure::to_json(one));
  return list;
}

}  // namespace evenkeel::flower
