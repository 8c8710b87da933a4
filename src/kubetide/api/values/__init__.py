"""Values that objects are made of: quantities, selectors, patches, conditions, CPU lists."""
