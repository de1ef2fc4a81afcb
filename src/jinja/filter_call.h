/// \file  What a filter is given, and those filters that sort.
#pragma once

#include <string_view>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace evenkeel::jinja {

struct FilterCall {
  const Value& x;
  std::string_view name;
  Arguments& arguments;
  Budget& budget;
};

/// "a.b.0" of a value. \param otherwise  in the place of each part that is not there
Value looked_up(const Value& value, const Value& path, Budget& budget, const Value* otherwise = nullptr);

/// Each keeps the order of what is equal; the case of letters does not count unless case_sensitive says so.
Value sorted_values(const FilterCall& call);      ///< sort(reverse, case_sensitive, attribute)
Value grouped(const FilterCall& call);            ///< groupby(attribute, default, case_sensitive)
Value dict_sorted(const FilterCall& call);        ///< dictsort(case_sensitive, by, reverse)
Value unique_items(const FilterCall& call);       ///< unique(case_sensitive, attribute)
Value least_or_greatest(const FilterCall& call);  ///< min and max(case_sensitive, attribute)

}  // namespace evenkeel::jinja
