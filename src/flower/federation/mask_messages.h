/// \file  Makes and reads the messages of a masked round (secure/round_messages.h) as headers of envelopes. Both ends
/// use it. Request and answer of a phase have the same kind:
///
///   secure_keys       context                        -> keys, identity
///   secure_roster     attempt, keys, identities      -> shares
///   secure_shares     attempt, inbox                 -> nothing
///   secure_survivors  set                            -> signature
///   secure_unmask     attempt, request, identities   -> reply
///
/// `attempt` is the digest of the context. An identity is a public key in PEM.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fed/exchange/summed_terms.h"
#include "flower/federation/envelope.h"
#include "secure/round_json.h"

namespace evenkeel::flower {

/// The header of an envelope of a masked round. Keep it while its views are used.
class MaskHeader {
 public:
  /// Parses the header. \param fields  the allowed fields \throws kData for any other field
  MaskHeader(const Envelope& envelope, std::initializer_list<std::string_view> fields);
  JsonView view() const { return {json_, place_, kData}; }
  JsonView at(std::string_view field) const { return view().at(field); }
  template <typename T>
  T read(std::string_view field) const {
    return secure::read_as<T>(at(field));
  }
  /// Reads a list of texts.
  std::vector<std::string> texts(std::string_view field) const { return at(field).strings(); }
  std::vector<secure::KeysOfMember> keys() const;
  std::string bytes(std::string_view field) const;  ///< decoded from Base64

 private:
  Json json_;
  std::string place_;
};

/// Returns the name of an attempt in messages: the digest of its context in Base64.
std::string name_of(const secure::RoundContext& context);
/// Returns the noise that each member adds; nothing if they add none.
std::optional<fed::NoiseTerms> noise_in(const secure::RoundContext& context);
/// Returns keys as a JSON list.
OrderedJson to_json(const std::vector<secure::KeysOfMember>& keys);

}  // namespace evenkeel::flower
