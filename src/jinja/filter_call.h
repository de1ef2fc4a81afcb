/// \file  Defines the arguments of a filter, and declares the filters that sort.
#pragma once

#include <string_view>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace evenkeel::jinja {

/// A call of the filter `name` on the value `x`. All members are borrowed.
struct FilterCall {
  const Value& x;
  std::string_view name;
  Arguments& arguments;
  Budget& budget;
};

/// These filters sort stably. Strings are compared without case unless the argument case_sensitive is true.
Value sorted_values(const FilterCall& call);      ///< sort(reverse, case_sensitive, attribute)
Value grouped(const FilterCall& call);            ///< groupby(attribute, default, case_sensitive)
Value dict_sorted(const FilterCall& call);        ///< dictsort(case_sensitive, by, reverse)
Value unique_items(const FilterCall& call);       ///< unique(case_sensitive, attribute)
Value least_or_greatest(const FilterCall& call);  ///< min and max(case_sensitive, attribute)

}  // namespace evenkeel::jinja
