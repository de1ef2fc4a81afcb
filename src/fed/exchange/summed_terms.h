/// \file  Declares the terms by which a client's upload becomes one summand of the round's sum ([secure_aggregation]).
/// They are part of the training task, so that all clients of a round use the same scale.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "privacy/member_noise.h"
#include "secure/ring.h"

namespace evenkeel::fed {

/// The noise that a client adds to its own change ([privacy] unit = "client"). The change is clipped and rounded to
/// integers, which are summed as they are: SummedTerms::exponent is 0, and SummedTerms::range bounds the sum.
struct NoiseTerms {
  double clip = 0;                ///< largest norm of a change
  privacy::MemberNoise member{};  ///< variances of one client's noise

  bool operator==(const NoiseTerms& other) const = default;
  void visit(auto& field) {
    field("clip", clip);
    field("member", member);
  }
};

/// The terms of one client in one round.
struct SummedTerms {
  double weight = 0;                  ///< p_c among all clients that were drawn; fixed before the round
  std::vector<int64_t> roster{};      ///< the ids of these clients; a client's place is its index
  int64_t bits = 32, exponent = 0;    ///< of secure::RingFormat
  double range = 0;                   ///< of secure::RingFormat
  std::optional<NoiseTerms> noise{};  ///< set if clients add noise

  secure::RingFormat format() const { return {.bits = bits, .exponent = static_cast<int>(exponent), .range = range}; }
  void visit(auto& field) {  // base/format/record.h
    field("weight", weight);
    field("roster", roster);
    field("bits", bits);
    field("exponent", exponent, -1200);
    field("range", range);
    field("noise", noise);
  }
};

}  // namespace evenkeel::fed
