/// \file  Measures the correlation of UB-SMoE's phi (an offset of the router's score per expert) with the utilization
/// of experts (docs/methods.md).
#pragma once

#include <vector>

#include "fed/store/round_records.h"

namespace evenkeel::records {

/// Association of phi and utilization over all experts of all layers of a round.
struct PhiCorrelation {
  double pearson = 0, spearman = 0;  ///< 0 if one of the two is constant
  double slope = 0, intercept = 0;   ///< least-squares line of phi over utilization; slope 0 if utilization is constant

  void visit(auto& field) {  // base/format/record.h
    field("pearson", pearson);
    field("spearman", spearman);
    field("slope", slope);
    field("intercept", intercept);
  }
};

/// Returns phi of a round as [L][E], in the order of its `layers`; empty if the method has none.
std::vector<std::vector<double>> phi_of(const fed::RoundRecord& round);

/// Computes the association over all experts. Equal values get the mean of their ranks. REQUIRES equal shapes [L][E]
/// and at least one expert.
PhiCorrelation phi_correlation(const std::vector<std::vector<double>>& phi_LE,
                               const std::vector<std::vector<double>>& utilization_LE);

}  // namespace evenkeel::records
