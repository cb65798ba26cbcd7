"""An interactive workbook on attention."""
