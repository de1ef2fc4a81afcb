/// \file  Makes the rule of [aggregation] for the uploads of a round.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "methods/aggregation_options.h"
#include "methods/combining_rule.h"
#include "methods/uploads.h"

namespace evenkeel::methods {

struct MethodEntry;

/// Makes the rule for the uploads of a round. krum and clipped_mean read all uploads, one site at a time. Memory: krum
/// holds one factor of one site in float32, from all uploads.
/// \param before  the factors and extras that the server sent; borrowed for the call
/// \param drawn   number of clients drawn for the round, of whom some may be lost; sets k of the trimmed mean
/// \return null for AggregationRule::kMean
/// \throws kData when krum gets fewer than 2 f + 3 uploads, trimmed_mean fewer than 2 k + 1, or k is 0; kNumeric from
/// krum and clipped_mean, naming a client whose upload is not finite
std::unique_ptr<CombiningRule> make_rule(const AggregationOptions& options, std::span<const ClientUpdate> updates,
                                         const lora::Payload& before, int64_t drawn);

/// Checks that a rule suits the method and `drawn`, the smallest number of clients drawn for a round.
/// \param table  the table [aggregation], for the position in error messages
/// \throws kConfig naming the method or the number
void check_rule(const AggregationOptions& options, const MethodEntry& method, int64_t drawn,
                const config::Table& table);

}  // namespace evenkeel::methods
