// The parts of the evaluator of expressions (private to the core). Everywhere: what is not known gives what is not known.
#pragma once
#include <vector>

#include "expr_functions.h"
#include "rlflow/expr.h"

namespace rlflow {

// expr_arithmetic.cc: operators; on lists they work element by element.
EVal arithmetic(int op, const EVal& a, const EVal& b);
EVal compare(int op, const EVal& a, const EVal& b);
Tri less(const EVal& a, const EVal& b);
EVal contains(const EVal& item, const EVal& list);

// expr_values.cc: functions of values of the graph.
EVal value_function(const Expr& e, const EvalScope& s);
EVal several_values(const Expr& e, const EvalScope& s);

// expr_lists.cc: functions of numbers and lists.
EVal list_function(int fn, const std::vector<EVal>& args);
// An index into a list of length n; negative counts from the end; -1 when it is out of range or not a plain integer.
int64_t position(const EVal& v, size_t n, bool end_allowed = false);

}  // namespace rlflow
